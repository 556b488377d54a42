"""The index of a table of chunks: for each entity, the row groups of files that have its chunks, with bounds of their
times.

A data file never changes. So an entry of the index is right for as long as the table names its file, and the index
needs no commit of its own. It is made of files in the folder `_index` of the table:

    _index/<version>.json       the newest index: the version of the table that it describes, and its parts
    _index/part-<uuid>.parquet  entries, ordered by entity; a part is written once

A reader takes the newest index, and then the commits of the table since: files that they remove have no entries any
more, and files that they add are looked up in their own footers. Without an index all files are. So a lost index costs
time, and no answer. Delta's VACUUM passes over the folder, a backup leaves it out, and an erasure removes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.storage.delta.data_files import check_plain, damage_refusal
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.log_files import parse_commit, read_commit
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.descriptions.column_types import INSTANT

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

INDEX_DIR = "_index"
"""The folder of the index in a table's folder."""
_MOST_COMMITS = 100
"""The most commits since the index that a reader follows."""
_CUT_OFF_US = 999
"""Bounds of times in a log may be cut off at the millisecond, the greatest too."""
GROUPS = pa.schema(
    [
        ("file", pa.string()),
        ("group", pa.int32()),
        ("least", pa.int64()),
        ("greatest", pa.int64()),
        ("counted", pa.bool_()),
    ]
)
"""The row groups that have an entity's chunks: the file, the number of the group in it, the bounds of the chunks' times
in microseconds, and true if each chunk is of a landing that counts; false if that is for the reader to find out."""


@dataclass(frozen=True)
class IndexPart:
    """A file of entries, and their number."""

    path: str
    entries: int


@dataclass(frozen=True)
class ChunkIndex:
    """An index of a version of a table.

    Args:
        version: the version.
        commit: the digest of that version's commit. A table that was made anew has another one.
        timelines: the timelines of which the entries have bounds.
        parts: the files of entries, oldest first.
        beside: files of the version that have no entries yet: a reader looks into them.
    """

    version: int
    commit: str
    timelines: tuple[str, ...]
    parts: tuple[IndexPart, ...]
    beside: tuple[str, ...] = ()

    @classmethod
    def parse(cls, content: bytes) -> ChunkIndex:
        """The index as its file has it."""
        of_file = json.loads(content)
        parts = tuple(IndexPart(**part) for part in of_file["parts"])
        return cls(of_file["version"], of_file["commit"], tuple(of_file["timelines"]), parts, tuple(of_file["beside"]))


def groups_of(handle: TableHandle, entity: str, timeline: str, lo_us: int, hi_us: int) -> pa.Table | None:
    """The row groups that have chunks of an entity with times from `lo_us` to `hi_us`, both included, on a timeline,
    with the columns of `GROUPS`. They may include groups that have none. None: there is no table.

    Raises:
        FileDamaged: a data file is missing or can't be read.
    """
    from deltalake.exceptions import TableNotFoundError

    system = handle.files()
    index = newest_index(system)
    if index is not None and timeline in index.timelines:
        try:
            since = _changes_since(system, index)
            if since is not None:
                indexed = _entries_of(system, index, since.removed, entity, timeline)
                loose = [*since.select(entity, timeline, lo_us, hi_us), *(set(index.beside) - since.removed)]
                return _within(pa.concat_tables([indexed, _look_up(system, loose, entity, timeline)]), lo_us, hi_us)
        except FileNotFoundError:
            pass  # another index has taken its place meanwhile
    try:
        table = open_table(handle)
    except TableNotFoundError:
        return None
    check_plain(table)
    listed = pa.table(table.get_add_actions(flatten=True))
    loose = _select_files(listed, entity, timeline, lo_us, hi_us)
    return _within(_look_up(system, loose, entity, timeline), lo_us, hi_us)


def chunks_in(handle: TableHandle, groups: pa.Table, entity: str, schema: pa.Schema) -> pa.Table:
    """The chunks of an entity in row groups, with the columns of `schema`; a column that a file lacks is null."""
    system = handle.files()
    read = [schema.empty_table()]
    for path in pc.unique(groups["file"]).to_pylist():
        numbers = sorted(groups.filter(pc.equal(groups["file"], path))["group"].to_pylist())
        with open_chunks(system, path) as file:
            present = [name for name in schema.names if name in file.schema_arrow.names]
            rows = file.read_row_groups(numbers, present, use_threads=False)
        rows = rows.filter(pc.equal(rows["entity"], entity))
        columns = [rows[f.name].cast(f.type) if f.name in present else pa.nulls(rows.num_rows, f.type) for f in schema]
        read.append(pa.table(columns, schema=schema))
    return pa.concat_tables(read)


@dataclass(frozen=True)
class _Changes:
    """The files that commits since an index removed, and the ones that they added, with their bounds in the log."""

    removed: frozenset[str]
    added: dict[str, dict[str, Any]]

    def select(self, entity: str, timeline: str, lo_us: int, hi_us: int) -> list[str]:
        """The added files that may have chunks of an entity from `lo_us` to `hi_us` on a timeline."""
        if not self.added:
            return []
        bounds = {("entity", pa.string()), (f"min_{timeline}", INSTANT), (f"max_{timeline}", INSTANT)}
        columns = {"path": pa.array([*self.added], pa.string())}
        for name, kind in bounds:
            for end, of_log in (("min", "minValues"), ("max", "maxValues")):
                texts = [stats.get(of_log, {}).get(name) for stats in self.added.values()]
                columns[f"{end}.{name}"] = pa.array(texts, pa.string()).cast(kind)
        return _select_files(pa.table(columns), entity, timeline, lo_us, hi_us)


def _changes_since(system: FileSystem, index: ChunkIndex) -> _Changes | None:
    """The changes of a table since an index; None if they can't be followed, or the table is another one."""
    removed, added = set[str](), dict[str, dict[str, Any]]()
    if digest_of(read_commit(system, index.version)) != index.commit:
        return None
    for version in count(index.version + 1):
        try:
            content = read_commit(system, version)
        except FileNotFoundError:
            return _Changes(frozenset(removed), added)
        if version > index.version + _MOST_COMMITS:
            return None
        for action in parse_commit(content, version):
            if "protocol" in action:
                return None
            if "remove" in action:
                path = unquote(action["remove"]["path"])
                removed.add(path)
                added.pop(path, None)
            if "add" in action:
                added[unquote(action["add"]["path"])] = json.loads(action["add"].get("stats") or "{}")
    raise AssertionError("versions end")


def _select_files(files: pa.Table, entity: str, timeline: str, lo_us: int, hi_us: int) -> list[str]:
    """The paths of the files whose bounds in the log admit chunks of an entity from `lo_us` to `hi_us`. A missing bound
    excludes nothing.

    `files`: one row each, as `get_add_actions(flatten=True)` lists them.
    """
    wanted = pa.array([True] * files.num_rows, pa.bool_())
    for column, compare, limit in (
        ("min.entity", pc.less_equal, entity),
        ("max.entity", pc.greater_equal, entity),
        (f"min.min_{timeline}", pc.less_equal, hi_us),
        (f"max.max_{timeline}", pc.greater_equal, lo_us),
    ):
        if column not in files.column_names:
            continue
        bound = files[column]
        if column.endswith(f"_{timeline}"):
            bound = bound.cast(INSTANT).cast(pa.int64())
            bound = pc.add(bound, _CUT_OFF_US) if column.startswith("max.") else bound
        wanted = pc.and_(wanted, pc.fill_null(compare(bound, pa.scalar(limit, bound.type)), True))
    return [unquote(path) for path in files.filter(wanted)["path"].to_pylist()]


def _entries_of(
    system: FileSystem, index: ChunkIndex, removed: Collection[str], entity: str, timeline: str
) -> pa.Table:
    """The entries of an entity in the parts of an index, but those of removed files."""
    read = [GROUPS.empty_table()]
    gone = pa.array(sorted(removed), pa.string())
    for part in index.parts:
        with system.open_input_file(part.path) as opened:
            file = pq.ParquetFile(opened, pre_buffer=True)
            groups = [n for n in range(file.num_row_groups) if _may_have(file.metadata.row_group(n).column(0), entity)]
            if not groups:
                continue
            bounds = [f"min_{timeline}", f"max_{timeline}"]
            # so little is read that handing it to threads would take longer
            rows = file.read_row_groups(groups, ["entity", "file", "group", *bounds], use_threads=False)
        rows = rows.filter(pc.and_not(pc.equal(rows["entity"], entity), pc.is_in(rows["file"], value_set=gone)))
        read.append(_as_groups(rows, timeline, counted=True))
    return pa.concat_tables(read)


def _look_up(system: FileSystem, paths: Sequence[str], entity: str, timeline: str) -> pa.Table:
    """The entries of an entity in data files, by their footers and their columns of bounds."""
    read = [GROUPS.empty_table()]
    for path in paths:
        with open_chunks(system, path) as file:
            read += _in_file(file, path, entity, timeline)
    return pa.concat_tables(read)


def _in_file(file: pq.ParquetFile, path: str, entity: str, timeline: str) -> Iterator[pa.Table]:
    names = [file.schema.column(place).path for place in range(len(file.schema))]
    bounds = [f"min_{timeline}", f"max_{timeline}"]
    if not {*bounds} <= {*names}:
        return
    leaf = names.index("entity")
    for number in range(file.num_row_groups):
        if not _may_have(file.metadata.row_group(number).column(leaf), entity):
            continue
        rows = file.read_row_group(number, ["entity", *bounds], use_threads=False)
        rows = rows.filter(pc.equal(rows["entity"], entity))
        of_group = {"file": pa.repeat(path, 1), "group": pa.array([number], pa.int32())}
        of_group |= {bounds[0]: pa.array([pc.min(rows[bounds[0]])]), bounds[1]: pa.array([pc.max(rows[bounds[1]])])}
        yield _as_groups(pa.table(of_group), timeline, counted=False)


def _may_have(column: Any, entity: str) -> bool:
    """False if the bounds of a column of a row group exclude an entity."""
    bounds = column.statistics
    return bounds is None or not bounds.has_min_max or bounds.min <= entity <= bounds.max


def _as_groups(rows: pa.Table, timeline: str, *, counted: bool) -> pa.Table:
    columns = {name: rows[name].cast(GROUPS.field(name).type) for name in ("file", "group")}
    columns |= {
        name: rows[f"{end}_{timeline}"].cast(INSTANT).cast(pa.int64())
        for name, end in (("least", "min"), ("greatest", "max"))
    }
    return pa.table({**columns, "counted": pa.repeat(counted, rows.num_rows)}).cast(GROUPS)


def _within(groups: pa.Table, lo_us: int, hi_us: int) -> pa.Table:
    """The groups with times from `lo_us` to `hi_us`; a group without bounds has no chunk on the timeline."""
    inside = pc.and_(pc.less_equal(groups["least"], hi_us), pc.greater_equal(groups["greatest"], lo_us))
    return groups.filter(inside)


@contextmanager
def open_chunks(system: FileSystem, path: str) -> Iterator[pq.ParquetFile]:
    """A data file of chunks, open for reads.

    Raises:
        FileDamaged: it is missing or can't be read.
    """
    try:
        with system.open_input_file(path) as opened:
            yield pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", pre_buffer=True)
    except (pa.ArrowException, OSError) as error:
        raise damage_refusal(system, path) or error from error


def digest_of(content: bytes) -> str:
    """The digest of a commit."""
    return hashlib.sha256(content).hexdigest()


def newest_index(system: FileSystem) -> ChunkIndex | None:
    """The newest index; None if there is none that can be read."""
    versions = [path for path in index_files(system) if path.endswith(".json")]
    if not versions:
        return None
    try:
        with system.open_input_file(max(versions)) as file:
            return ChunkIndex.parse(file.read())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def index_files(system: FileSystem) -> list[str]:
    """The paths of the files in the folder of the index."""
    from pyarrow.fs import FileSelector

    return [entry.path for entry in system.get_file_info(FileSelector(INDEX_DIR, allow_not_found=True))]
