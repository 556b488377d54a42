"""Writing the index of a table of chunks; see `chunk_index` for what it is."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.engine.chunks import due_runs
from spark_jobs.storage.delta.chunk_index import (
    INDEX_DIR,
    ChunkIndex,
    IndexPart,
    digest_of,
    index_files,
    newest_index,
    open_chunks,
)
from spark_jobs.storage.delta.data_files import FileDamaged, check_plain
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.log_files import read_commit
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.descriptions.column_types import INSTANT

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

GROUP_ENTRIES = 4_096
"""Entries in a row group of a part: what a reader takes in of a part, some 100 KB."""
PART_ENTRIES = 1 << 21
"""Parts with as many entries are not merged with others any more. It bounds the memory that a merge takes."""
FEWEST_PARTS = 4
"""The least number of parts that are merged at once. A query opens each part, and a part is small to write."""
_VERSION_DIGITS = 20


Counted = Callable[[Collection[int]], Collection[int]]
"""A function that gives those of some landings whose chunks count."""


def write_index(handle: TableHandle, timelines: Sequence[str], counted: Counted, newest: int) -> bool:
    """Make the index describe the table's newest version; returns false if it does already.

    The caller writes the table alone. Entries of files that are gone are dropped, those of new files are added, and
    parts are merged such that their number grows with the logarithm of the number of calls.

    Args:
        handle: the table, with the columns `entity`, `landing`, and `min_T` and `max_T` for each timeline T.
        timelines: the timelines.
        counted: gives the landings whose chunks count.
        newest: the newest landing up to which no other one will ever count. Files of later ones are left to readers.
    """
    table, system = open_table(handle), handle.files()
    check_plain(table)
    version = table.version()
    try:
        commit = digest_of(read_commit(system, version))
    except FileNotFoundError:
        return False  # a checkpoint is all that is left of the newest version; the next commit gets an index
    before = newest_index(system)
    is_usable = before is not None and before.timelines == tuple(timelines)
    if before is not None and is_usable and not before.beside and (before.version, before.commit) == (version, commit):
        return False
    files = [unquote(path) for path in pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()]
    writer = _Writer(handle, system, tuple(timelines), counted, newest)
    try:
        parts, beside = writer.parts_after(before.parts if before is not None and is_usable else (), files)
    except FileNotFoundError:
        parts, beside = writer.parts_after((), files)
    _keep(handle, system, ChunkIndex(version, commit, tuple(timelines), tuple(parts), tuple(beside)), before)
    return True


class _Writer:
    """Makes the parts of an index of a table."""

    def __init__(
        self, handle: TableHandle, system: FileSystem, timelines: tuple[str, ...], counted: Counted, newest: int
    ) -> None:
        self._handle, self._system, self._timelines = handle, system, timelines
        self._counted, self._newest = counted, newest
        self._counts: dict[int, bool] = {}

    def parts_after(self, parts: Sequence[IndexPart], files: Sequence[str]) -> tuple[list[IndexPart], list[str]]:
        """The parts that have the entries of exactly these files, made of those before; and the files without any."""
        live, indexed = pa.array(files, pa.string()), set[str]()
        index_parts: list[IndexPart] = []
        waiting = [self._schema().empty_table()]
        for part in parts:
            of_part = pc.unique(self._read(part, ["file"])["file"])
            indexed.update(of_part.to_pylist())
            if pc.all(pc.is_in(of_part, value_set=live)).as_py():
                index_parts.append(part)
            else:
                rows = self._read(part, None)
                waiting.append(rows.filter(pc.is_in(rows["file"], value_set=live)))
        beside = []
        for path in files:
            if path in indexed:
                continue
            try:
                entries = self._entries(path)
            except FileDamaged:
                entries = None  # for the queries that need it to say so
            if entries is None:
                beside.append(path)
                continue
            waiting.append(entries)
            if sum(rows.num_rows for rows in waiting) >= PART_ENTRIES:
                index_parts += self._write(waiting)
                waiting = waiting[:1]
        index_parts += self._write(waiting)
        return self._merge(index_parts), beside

    def _merge(self, parts: list[IndexPart]) -> list[IndexPart]:
        """The parts, the newest of them merged if there are enough for it to pay."""
        first = next((n for n in range(len(parts), 0, -1) if parts[n - 1].entries >= PART_ENTRIES), 0)
        merged = due_runs([part.entries for part in parts[first:]], FEWEST_PARTS)
        if not merged:
            return parts
        return [*parts[:-merged], *self._write([self._read(part, None) for part in parts[-merged:]])]

    def _write(self, tables: Sequence[pa.Table]) -> list[IndexPart]:
        """Write entries as a part; none if there are none."""
        rows = pa.concat_tables(tables).sort_by([(name, "ascending") for name in ("entity", "file", "group")])
        if not rows.num_rows:
            return []
        path = f"{INDEX_DIR}/part-{uuid.uuid4()}.parquet"
        _make_folder(self._handle, self._system)
        pq.write_table(
            rows, path, filesystem=self._system, compression="zstd", row_group_size=GROUP_ENTRIES, store_schema=False
        )
        return [IndexPart(path, rows.num_rows)]

    def _read(self, part: IndexPart, columns: list[str] | None) -> pa.Table:
        with self._system.open_input_file(part.path) as opened:
            return pq.ParquetFile(opened, pre_buffer=True).read(columns)

    def _entries(self, path: str) -> pa.Table | None:
        """The entries of a data file; None if they would be wrong later, or for a reader."""
        bounds = [f"{end}_{name}" for name in self._timelines for end in ("min", "max")]
        read = []
        with open_chunks(self._system, path) as file:
            present = [name for name in ("entity", "landing", *bounds) if name in file.schema_arrow.names]
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number, present)
                for name in bounds:
                    if name not in present:
                        rows = rows.append_column(name, pa.nulls(rows.num_rows, INSTANT))
                of_group = rows.group_by("entity").aggregate(
                    [(name, name[:3]) for name in bounds] + [("landing", "distinct")]
                )
                read.append(
                    of_group.append_column("group", pa.repeat(pa.scalar(number, pa.int32()), of_group.num_rows))
                )
        if not read:
            return self._schema().empty_table()
        whole = pa.concat_tables(read)
        landings = pc.unique(whole["landing_distinct"].combine_chunks().flatten()).to_pylist()
        if max(landings, default=0) > self._newest:
            return None
        counts = self._which_count(landings)
        if not any(counts):
            return self._schema().empty_table()
        if not all(counts):
            return None
        columns = {"entity": whole["entity"], "file": pa.repeat(path, whole.num_rows), "group": whole["group"]}
        columns |= {name: whole[f"{name}_{name[:3]}"] for name in bounds}
        return pa.table(columns).cast(self._schema())

    def _which_count(self, landings: Sequence[int]) -> list[bool]:
        """For each landing, true if its chunks count."""
        new = [landing for landing in landings if landing not in self._counts]
        if new:
            counted = self._counted(new)
            self._counts |= {landing: landing in counted for landing in new}
        return [self._counts[landing] for landing in landings]

    def _schema(self) -> pa.Schema:
        bounds = [(f"{end}_{name}", INSTANT) for name in self._timelines for end in ("min", "max")]
        return pa.schema([("entity", pa.string()), ("file", pa.string()), ("group", pa.int32()), *bounds])


def _keep(handle: TableHandle, system: FileSystem, index: ChunkIndex, before: ChunkIndex | None) -> None:
    """Make an index the newest one, and remove files that neither it nor the one before it needs."""
    _make_folder(handle, system)
    path = f"{INDEX_DIR}/{index.version:0{_VERSION_DIGITS}d}.json"
    draft = f"{INDEX_DIR}/draft-{uuid.uuid4()}" if handle.is_local else path
    text = json.dumps(asdict(index)).encode()
    # of a store `deltalake` takes bytes alone, and Arrow passes a write on as bytes if it fits into a buffer
    with system.open_output_stream(draft, buffer_size=len(text) + 1) as stream:
        stream.write(text)
    if handle.is_local:
        system.move(draft, path)
    needed = {path, *(part.path for of in (index, before) if of is not None for part in of.parts)}
    for listed in index_files(system):
        if listed not in needed:
            system.delete_file(listed)


def _make_folder(handle: TableHandle, system: FileSystem) -> None:
    if handle.is_local:
        system.create_dir(INDEX_DIR, recursive=True)
