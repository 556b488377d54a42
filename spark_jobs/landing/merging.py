"""Merging: the many chunks of an entity that many landings brought become few.

Merged rows have been published, so that no run takes them up again by their landing. (A run that was not published is
withdrawn, and lands in the trace once more.) A merged chunk keeps the landing of each row. The rows that stand do not
change, nor do the landings that took rows back. One commit replaces the chunks by the merged ones; it also removes
chunks of attempts that never came to count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.distribution import cut_work
from spark_jobs.engine.chunks import chunk_columns, chunk_rows, due_runs, layers
from spark_jobs.errors import TidemarkError
from spark_jobs.landing import ledger
from spark_jobs.landing.block_chunks import HELD_BYTES, HELD_ROWS
from spark_jobs.landing.chunking import ARRAYS, chunk_limits, merged_chunks, row_layout
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.delta.dense_files import dense_layout, page_rows
from spark_jobs.storage.delta.file_summaries import FileSummary, logged_files
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import LANDINGS, chunks
from spark_jobs.storage.lakes.lake import Lake, RunLake
from spark_jobs.storage.lakes.spark_lake import SparkLake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROWS_A_FILE = 1_000_000
"""Rows that one task merges and writes."""
_NEVER = 2**63 - 1
"""A number beyond every landing."""


@dataclass(frozen=True, slots=True)
class LandingRange:
    """Files of chunks whose column `landing` is between `first` and `last`, both included, as in no other file: their
    chunks, bytes and rows. A merge makes one run, of all landings beyond the run before it."""

    first: int
    last: int
    chunks: int
    size: int
    rows: int = 0

    def join(self, other: LandingRange) -> LandingRange:
        """One run of both, without a number of rows."""
        last = max(self.last, other.last)
        return LandingRange(self.first, last, self.chunks + other.chunks, self.size + other.size)


@dataclass(frozen=True, slots=True)
class ChunkMerges:
    """The result of a merge: the numbers of chunks before and after, and of their rows; all 0 if there was nothing to
    merge."""

    chunks_before: int = 0
    chunks_after: int = 0
    rows: int = 0


class RowsDiffer(TidemarkError):
    """Chunks have other numbers of rows than the ledger. Facts: `source`, `ledger`, `chunks`."""

    code = "rows_differ"


def merge_due(lake: RunLake, source: Source, token: int, through: int, first_whole: int = 0) -> ChunkMerges:
    """Merge the newest runs of landings up to `through`, if there are enough for a merge to pay; see
    `engine.chunks.merging.due_runs`. Runs whose chunks are dense already stay. `first_whole`: the number of the first
    drop whose rows are all there; of earlier drops rows may have expired."""
    of_landing = ledger.rows_by_landing(lake, source, first_whole)
    runs = runs_of(lake, source, of_landing)
    thin: list[LandingRange] = []
    for run in reversed([run for run in runs if run.last <= through]):
        # merging fills an unsorted chunk up to this many rows at most
        if 2 * run.rows > run.chunks * source.chunks.unsorted:
            break
        thin.insert(0, run)
    newest = due_runs([run.size for run in thin])
    return (
        _merge(lake, source, token, range(thin[-newest].first, through + 1), runs, of_landing, first_whole)
        if newest
        else ChunkMerges()
    )


def merge_all(lake: RunLake, source: Source, token: int, through: int, first_whole: int = 0) -> ChunkMerges:
    """Merge the chunks of all landings up to `through`; a repeat changes nothing. `first_whole`: as for `merge_due`."""
    of_landing = ledger.rows_by_landing(lake, source, first_whole)
    runs = runs_of(lake, source, of_landing)
    return _merge(lake, source, token, range(through + 1), runs, of_landing, first_whole)


def runs_of(lake: Lake, source: Source, rows_by_landing: Mapping[int, int]) -> list[LandingRange]:
    """The runs of a source's chunks, oldest first, with the ledger's numbers of rows. Reads Delta's log, no chunk."""
    files = sorted(
        (_run(file) for file in logged_files(lake.folder.handle(chunks(source)), "landing")), key=lambda run: run.first
    )
    runs: list[LandingRange] = []
    for file in files:
        overlaps = runs and file.first <= runs[-1].last
        runs.append(runs.pop().join(file) if overlaps else file)
    after = 0
    for place, run in enumerate(runs):
        rows = sum(rows for landing, rows in rows_by_landing.items() if after < landing <= run.last)
        runs[place], after = replace(run, rows=rows), run.last
    return runs


def _run(file: FileSummary) -> LandingRange:
    """A run of one file. A file without bounds in the log is never merged."""
    first, last = file.bounds["landing"]
    return LandingRange(0 if first is None else first, _NEVER if last is None else last, file.rows, file.size)


def _merge(
    lake: RunLake,
    source: Source,
    token: int,
    landings: range,
    runs: Sequence[LandingRange],
    rows_by_landing: Mapping[int, int],
    first_whole: int,
) -> ChunkMerges:
    """Merge the chunks of some landings, in one commit; no commit if one run would become as many chunks.

    The rows of drops from number `first_whole` on are counted, which `rows_by_landing` has.

    Raises:
        RowsDiffer: the merged chunks have other numbers of rows than their landings brought.
    """
    table, through = chunks(source), landings.stop - 1
    before = [run for run in runs if landings.start <= run.first and run.last <= through]
    if not before:
        return ChunkMerges()
    n_before = sum(run.chunks for run in before)
    # by the landings, not by the runs: a landing whose chunks are gone has no run
    after = max((run.last for run in runs if run.last < before[0].first), default=0)
    rows = sum(n for landing, n in rows_by_landing.items() if after < landing <= through)
    newest = max((n for n in rows_by_landing if n <= before[-1].last), default=0)
    merger, counted = _Merger(source, newest, token), _Counted(before[0].first, through, tuple(rows_by_landing))
    stored = lake.stored(table, table.column_names, counted.where)
    cut = cut_work(lake.spark, rows, stored.n_bytes, ROWS_A_FILE)
    if not isinstance(lake, SparkLake) or (cut.here and cut.tasks == 1):
        draft = _merge_here(lake, table, merger, counted, stored.whole(), first_whole)
    else:
        tasks = -(-rows // ROWS_A_FILE) if cut.here else cut.tasks
        draft = _merge_in_tasks(lake, table, merger, counted, tasks, first_whole)
    if draft.rows_of_whole != rows:
        raise _rows_differ(source, rows, draft.rows_of_whole)
    if len(before) == 1 and draft.chunks == n_before:
        return ChunkMerges()
    draft.replace(page_rows(draft.rows, draft.chunks))
    return ChunkMerges(n_before, draft.chunks, draft.rows)


@dataclass(frozen=True, slots=True)
class _Counted:
    """The chunks of the landings from `first` to `last`, both included; those of `landings` count."""

    first: int
    last: int
    landings: tuple[int, ...]

    @property
    def where(self) -> pc.Expression:
        """pyarrow condition: a chunk is one of them, and counts."""
        landing = pc.field("landing")
        return (landing >= self.first) & (landing <= self.last) & landing.isin(pa.array(self.landings, pa.int64()))

    @property
    def inside(self) -> Column:
        """Spark condition: a chunk is one of them."""
        return F.col("landing").between(self.first, self.last)

    def others(self, rows: pa.Table) -> pa.Table | None:
        """The other chunks of a file; None if the file has none of these."""
        landing = rows["landing"].to_numpy()
        others = (landing < self.first) | (landing > self.last)
        return None if others.all() else rows.filter(pa.array(others))


@dataclass(frozen=True, slots=True)
class _Draft:
    """Merged chunks that are in no table yet: their number, that of their rows, and that of their rows of whole drops.
    `replace` puts them in the place of the chunks that they are made of, in one commit, given the chunks in a page."""

    chunks: int
    rows: int
    rows_of_whole: int
    replace: Callable[[int], object]


def _merge_here(
    lake: RunLake, table: Table, merger: _Merger, counted: _Counted, stored: pa.Table, first_whole: int
) -> _Draft:
    """Merge the chunks `stored` in this process."""
    made = merged_here(stored, merger)

    def replace(rows_in_page: int) -> None:
        lake.rewrite(table, counted.others, ["landing"], more=made, layout=dense_layout(rows_in_page))

    ids = pc.list_flatten(made["row_ids"]).to_numpy()
    return _Draft(made.num_rows, ids.size, int(np.count_nonzero(ids >> PLACE_BITS >= first_whole)), replace)


def _merge_in_tasks(
    lake: SparkLake, table: Table, merger: _Merger, counted: _Counted, tasks: int, first_whole: int
) -> _Draft:
    """Merge chunks in so many tasks of Spark."""
    stored = lake.read(table).where(counted.inside & F.col("landing").isin(*counted.landings))
    # not `persist`: Spark plans a cached query again at every write to a table that it reads
    made = merge_chunks(stored, merger, tasks).localCheckpoint()
    of_whole = F.size(F.filter("row_ids", lambda row_id: F.shiftright(row_id, PLACE_BITS) >= first_whole))
    sums = (F.coalesce(F.sum(rows), F.lit(0)) for rows in (F.col("rows"), of_whole))
    n_chunks, n_rows, n_of_whole = made.agg(F.count(F.lit(1)), *sums).collect()[0]

    def replace(rows_in_page: int) -> None:
        lake.replace_dense(table, made, counted.inside, rows_in_page)

    return _Draft(n_chunks, n_rows, n_of_whole, replace)


def _rows_differ(source: Source, ledger_rows: int, chunk_rows: int) -> RowsDiffer:
    return RowsDiffer(
        expected=f"{ledger_rows} rows in the chunks to merge, as the ledger says of their landings",
        found=f"{chunk_rows}",
        consequence="nothing was merged; bronze is as it was",
        next_step=f"`tidemark audit {source.name}` names the files that differ, and how to land them again",
        source=source.name,
        ledger=ledger_rows,
        chunks=chunk_rows,
    )


def merged_here(stored: pa.Table, merger: _Merger) -> pa.Table:
    """The chunks `stored`, merged in this process: the same as one task of `merge_chunks` makes of them."""
    first = pc.list_element(stored["row_ids"], 0)
    ordered = stored.append_column("first", first).sort_by([("entity", "ascending"), ("first", "ascending")])
    batches = [*merger(ordered.drop_columns("first").combine_chunks().to_batches())]
    return pa.Table.from_batches(batches) if batches else stored.slice(0, 0)


def merge_chunks(stored: DataFrame, merger: _Merger, tasks: int) -> DataFrame:
    """The chunks `stored`, merged by `tasks` tasks, each with a range of entities."""
    together = stored.coalesce(1) if tasks <= 1 else stored.repartitionByRange(tasks, "entity")
    return together.sortWithinPartitions("entity", F.col("row_ids")[0]).mapInArrow(
        merger, chunks(merger.source).schema()
    )


@dataclass(frozen=True)
class _Merger:
    """The function that runs in the Python workers: chunks of landings up to `landing`, ordered by entity, to merged
    chunks ordered by entity."""

    source: Source
    landing: int
    token: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting_parts: list[pa.Table] = []
        parts = 0
        for batch in batches:
            for part in _parts(pa.Table.from_batches([batch])):
                waiting_parts.append(part)
                if _rows_in(waiting_parts) >= HELD_ROWS or sum(p.nbytes for p in waiting_parts) >= HELD_BYTES:
                    whole, waiting_parts = _whole_entities(pa.concat_tables(waiting_parts))
                    yield from self._merge(whole, parts)
                    parts += 1
        if waiting_parts:
            yield from self._merge(pa.concat_tables(waiting_parts), parts)

    def _merge(self, stored: pa.Table, part: int) -> Iterator[pa.RecordBatch]:
        layout = row_layout(self.source)
        names = {layout.row_id, *layout.timelines, *layout.components}
        arrays = {name: ARRAYS.get(name, name) for name in names} | {"of_row": LANDINGS.name}
        rows = chunk_rows(stored, rows="rows", arrays=arrays, same=("entity", "diff", "landing"))
        # as `LANDING_OF_ROWS` has it: rows of one landing are stored without it
        of_row = pc.coalesce(rows["of_row"], rows["landing"])
        rows = rows.drop_columns(["of_row", "landing"]).append_column("landing", of_row)
        entity = rows["entity"].combine_chunks().dictionary_encode()
        went = rows["diff"].to_numpy() < 0
        codes = entity.indices.to_numpy().astype(np.int64) * 2 + went
        order, layer = layers(codes, rows["row_id"].to_numpy(), rows["landing"].to_numpy())
        made = []
        for number in np.unique(layer).tolist():
            for diff, of_diff in ((1, ~went[order]), (-1, went[order])):
                layer_rows = order[(layer == number) & of_diff]
                if layer_rows.size:
                    made.append(
                        self._cut(rows.take(pa.array(layer_rows)), diff, f"merged-{self.token}-{part}-{number}")
                    )
        yield from pa.concat_tables(made).sort_by("entity").to_batches()

    def _cut(self, rows: pa.Table, diff: int, writer: str) -> pa.Table:
        layout = row_layout(self.source)
        made = chunk_columns(
            rows,
            entity=layout.entity,
            row_id=layout.row_id,
            timelines=layout.timelines,
            components=[*layout.components, "landing"],
            config=chunk_limits(self.source),
        )
        return merged_chunks(self.source, made, diff=diff, landing=self.landing, writer=writer)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """A table of chunks in parts, none of them much larger than a worker may have in memory."""
    share = min(HELD_ROWS / max(_rows_in([table]), 1), HELD_BYTES / max(table.nbytes, 1))
    step = max(1, int(table.num_rows * share))
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def _rows_in(chunks: Sequence[pa.Table]) -> int:
    return sum(int(table["rows"].to_numpy().sum()) for table in chunks)


def _whole_entities(stored: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """The chunks of all entities but the last, which may continue, and those of the last. If there is only one entity,
    all chunks and none."""
    entity = stored["entity"].combine_chunks()
    last = pc.index(entity, entity[-1]).as_py()
    return (stored.slice(0, last), [stored.slice(last)]) if last else (stored, [])
