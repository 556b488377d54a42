"""The data plane on Delta: all batches of a collection in one table, partitioned by `batch`.

A batch is read and removed by its partition alone, so neither costs more in a long history. Its data is committed
under a fresh handle; nothing reads it until a state names the handle, and a crash before that leaves an orphan.
Times are TIMESTAMP columns, of microseconds since 1970 as int64 in the state.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame as SparkDataFrame
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.arrangement import LEVELS, AdvanceRequest, Buckets, Description, StoredBatch, check_trace_batch
from spark_jobs.engine.corrections import DIFF_LIMIT
from spark_jobs.engine.updates import DIFF, TIME, DiffOverflow, MalformedUpdates
from spark_jobs.errors import conditions_in
from spark_jobs.model import Frontier
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.file_summaries import FileSummary
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.lake import Lake, with_frames
from spark_jobs.trace.journal import StateConflict
from spark_jobs.trace.plane import DataPlane, Examined, Placed, Slice, malformed_updates

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BATCH, TOKEN = "batch", "token"
_NEW = "is_new"
"""Column of updates that `place` writes: true if they are new, false if they move."""
_OVERTAKEN = "DELTA_CONCURRENT_"
"""The prefix of the error conditions with which Delta refuses a commit whose inputs another commit has removed."""
_OBSERVED = ("updates", "times", "diffs", "least", "greatest", "below")
_ZERO = "zero_"
"""The prefix of a column that distinguishes 0.0 and -0.0 of a column of doubles."""

_WHOLE = {"tinyint", "smallint", "int", "bigint"}

ROWS_PER_FILE = 250_000
"""The approximate number of updates that one task sorts and writes. A larger batch is split into as many files as it
needs."""


class DeltaPlane(DataPlane["DataFrame"]):
    """Batches in one Delta table with the columns `batch` (its partition), `time`, `diff`, and data.

    Args:
        lake: the session.
        table: the table; its column `token`, if it has one, gets the token of the attempt that wrote the row.
        order: the leading data columns of a batch's order; the others follow in the table's order.
        fence: the attempt that writes: its token is in its handles and rows. None: handles are drawn at random.
    """

    def __init__(self, lake: Lake, table: Table, *, order: Sequence[str] = (), fence: Fence | None = None) -> None:
        self._lake = lake
        self._table = table
        self._fence = fence
        self._data = [c.name for c in table.columns if c.name not in (BATCH, TIME, DIFF, TOKEN)]
        # a map has no order, so a batch is not sorted by it
        sortable = [c.name for c in table.columns if c.name in self._data and not c.type.upper().startswith("MAP")]
        self._doubles = [c.name for c in table.columns if c.name in self._data and c.type.upper() == "DOUBLE"]
        self._order = [*order, *[name for name in sortable if name not in order]]
        self._made = count()
        self._magnitudes: dict[str, int] = {}
        self._types = {c.name: _plain(c.type) for c in table.columns}
        self._prefix = uuid.uuid4().hex[:16] if fence is None else f"{fence.token:010d}"

    def new_handle(self, kind: str) -> str:
        """A handle that no batch has: a letter for the operation, the writer, a number."""
        return f"{kind}{self._prefix}.{next(self._made)}"

    def examine(self, updates: DataFrame, frontiers: Sequence[Frontier]) -> Examined:
        """See `DataPlane.examine`; `first_below` has the least time below each frontier."""
        self._check_columns(updates)
        time = F.unix_micros(TIME)
        below = [F.min(F.when(_below(frontier), time)).alias(f"f{i}") for i, frontier in enumerate(frontiers)]
        counts = [F.count(F.lit(1)), F.count(TIME), F.count(DIFF), F.min(DIFF), F.max(DIFF)]
        return _examine(*updates.agg(*counts, *below).collect()[0])

    @property
    def greatest_time(self) -> int:
        """The greatest int64, as times are microseconds."""
        return DIFF_LIMIT - 1

    def check_sums(self, updates: DataFrame, magnitude: int, beside: Callable[[], Sequence[Slice]]) -> None:
        """See `DataPlane.check_sums`. The sum of a value's positive diffs and that of its negative diffs must each fit,
        whatever the times. Spark adds up in any order, so intermediate sums must fit, too."""
        slices = beside()
        unknown = [part.handle for part in slices if part.handle not in self._magnitudes]
        if unknown:
            self._magnitudes |= dict.fromkeys(unknown, 0)
            self.stored(unknown)
        if magnitude + sum(self._magnitudes[part.handle] for part in slices) < DIFF_LIMIT:
            return
        everything = self.read(slices).unionByName(updates.select(*self._data, TIME, F.col(DIFF).cast("bigint")))
        diff = F.col(DIFF).cast("decimal(38,0)")
        sums = [F.sum(F.when(diff > 0, diff)).alias("added"), F.sum(F.when(diff < 0, -diff)).alias("taken")]
        most = everything.groupBy(*self._data).agg(*sums).agg(F.max("added"), F.max("taken")).collect()[0]
        if max(int(total or 0) for total in most) >= DIFF_LIMIT:
            raise DiffOverflow

    def put(self, updates: DataFrame) -> StoredBatch:
        """See `DataPlane.put`; columns are taken by name."""
        return self._store("U", updates.select(*self._data, TIME, F.col(DIFF).cast("bigint").alias(DIFF)))

    def drain(self, handles: Sequence[str], lower: Frontier, upper: Frontier) -> StoredBatch | None:
        """See `DataPlane.drain`. The sum of diffs beyond int64 fails with Spark's ARITHMETIC_OVERFLOW."""
        raw = self.read([Slice(handle, lower, upper) for handle in handles])
        return None if raw.isEmpty() else self._store("T", raw, consolidate=True)

    def place(self, updates: DataFrame | None, request: AdvanceRequest) -> Placed:
        """See `DataPlane.place`: one Spark job, which counts and examines the updates that it writes."""
        parts = []
        if updates is not None:
            self._check_columns(updates)
            new = updates.select(*self._data, TIME, F.col(DIFF).cast("bigint").alias(DIFF))
            parts.append(new.withColumn(_NEW, F.lit(True)))
        if request.moving:
            moving = self.read([Slice(batch.handle, request.lower) for batch in request.moving])
            parts.append(moving.withColumn(_NEW, F.lit(False)))
        drained, buckets = self.new_handle("T"), [self.new_handle("U") for _ in range(LEVELS)]
        due = F.col(TIME) < _instant(request.seal)
        bucket = F.element_at(F.array(*map(F.lit, buckets)), _level(request.buckets, request.seal) + 1)
        rows = reduce(SparkDataFrame.unionByName, parts).withColumn(
            BATCH, F.when(due, F.lit(drained)).otherwise(bucket)
        )
        observation = Observation(f"place_{drained}")
        rows = rows.observe(observation, *_aggregates(request.door), F.count_if(due).alias("due")).drop(_NEW)
        self.write(rows, consolidate=True)
        observed = observation.get
        try:
            about_new = _examine(*(observed[name] for name in _OBSERVED))
        except MalformedUpdates:
            self.delete([drained, *buckets])
            raise
        stored = self.stored([drained, *buckets])
        of_trace = stored.pop(drained, StoredBatch(drained, 0, 0, 0, 0)) if observed["due"] else None
        return Placed(
            about_new, observed["due"], of_trace, tuple(stored[handle] for handle in buckets if handle in stored)
        )

    def trim(self, handle: str, lower: Frontier) -> StoredBatch:
        """See `DataPlane.trim`."""
        return self._store("U", self.read([Slice(handle, lower)]))

    def merge(self, earlier: str, later: str, since: Frontier) -> StoredBatch:
        """See `DataPlane.merge`."""
        n_rows = sum(batch.n_updates for batch in self.stored([earlier, later]).values())
        rows = self.read([Slice(earlier), Slice(later)], since)
        return self._store("M", rows, consolidate=True, n_rows=n_rows)

    def read(self, slices: Sequence[Slice], since: Frontier | None = None) -> DataFrame:
        """See `DataPlane.read`. The frame reads when it is used: `delete` must not come before."""
        bounds: dict[tuple[Frontier, Frontier], list[str]] = {}
        for part in slices:
            bounds.setdefault((part.lower, part.upper), []).append(part.handle)
        cut = F.lit(False)
        for (lower, upper), handles in bounds.items():
            cut = cut | (F.col(BATCH).isin(handles) & ~_below(lower) & _below(upper))
        named = F.col(BATCH).isin([part.handle for part in slices])
        rows = with_frames(self._lake, "a read of batches as a frame").read(self._table).where(named & cut)
        time = F.col(TIME) if since is None or since.time is None else F.greatest(TIME, _instant(since.time))
        return rows.select(*self._data, time.alias(TIME), DIFF)

    def accumulate(self, slices: Sequence[Slice]) -> DataFrame:
        """See `DataPlane.accumulate`."""
        return self._consolidate(self.read(slices), self._data).orderBy(*self._order)

    def delete(self, handles: Sequence[str]) -> None:
        """See `DataPlane.delete`: one commit that drops partitions; the files go with the next VACUUM."""
        if handles:
            self._lake.replace_files(self._table, [], BATCH, handles)
            for handle in handles:
                self._magnitudes.pop(handle, None)

    def write(self, rows: DataFrame, *, consolidate: bool = False, n_rows: int = 0) -> None:
        """Write batches with one commit; `rows` have `batch`. `stored` describes the written batches. Raises
        StateConflict if the batches that `rows` read were removed meanwhile.

        `consolidate`: diffs are summed per batch, data and time, zeros dropped. `n_rows`: the approximate number of
        rows. Up to ROWS_PER_FILE of them make one file, sorted by data, then time. More rows make several files: each
        is sorted, and all updates of one value of the first column of the order are in one file.
        """
        n_files = max(-(-n_rows // ROWS_PER_FILE), 1)
        spread = rows.repartition(n_files, BATCH, *self._order[:1]) if n_files > 1 else rows.repartition(1, BATCH)
        if consolidate:
            # needs no shuffle of its own: rows with equal values of its columns are in one partition already
            spread = self._consolidate(spread, [BATCH, *self._data, TIME])
        if TOKEN in self._table.column_names:
            spread = spread.withColumn(TOKEN, F.lit(0 if self._fence is None else self._fence.token).cast("bigint"))
        try:
            lake = with_frames(self._lake, "the writing of frames to batches")
            lake.append(self._table, spread.sortWithinPartitions(BATCH, *self._order, TIME), None)
        except PySparkException as error:
            if not any(condition.startswith(_OVERTAKEN) for condition in conditions_in(str(error))):
                raise
            # the batches that these rows were read from were replaced and removed: a newer state is in force
            raise StateConflict([self._table.qualified]) from error

    def stored(self, handles: Sequence[str] | None = None) -> dict[str, StoredBatch]:
        """The stored batches with these handles (None: all batches, orphans too), by handle.

        Counts, bounds and checksums are read back from the committed files; the size is their bytes.
        """
        files = self._lake.summaries(self._table, BATCH, handles, (TIME, DIFF))
        magnitudes: dict[str, int] = {}
        for file in files:
            least_diff, greatest_diff = file.bounds[DIFF]
            magnitude = file.rows * max(greatest_diff, -least_diff)
            magnitudes[file.partition] = magnitudes.get(file.partition, 0) + magnitude
        self._magnitudes |= magnitudes
        return batches_of(files)

    def check(self, handle: str, description: Description) -> None:
        """See `DataPlane.check`. Each file of a batch must be in the order of the first column: `write` promises no
        more than that for all batches."""
        by = self._order[0]
        stored = self._lake.stored(self._table, [by, TIME, DIFF], partitions={BATCH: [handle]})
        for file in stored.by_file():
            updates = file.whole()
            times = updates.column(TIME).cast(pa.int64())
            check_trace_batch(description, updates.set_column(1, TIME, times), by=by)

    def _check_columns(self, updates: DataFrame) -> None:
        """Raise MalformedUpdates unless the frame has the table's data, a timestamp and a whole number as diff."""
        if not isinstance(updates, SparkDataFrame):
            raise malformed_updates("a DataFrame of Spark", type(updates).__name__)
        for name in (*self._data, TIME, DIFF):
            kinds = [_plain(field.dataType.simpleString()) for field in updates.schema.fields if field.name == name]
            wanted = _WHOLE if name == DIFF else {self._types[name]}
            if len(kinds) != 1 or kinds[0] not in wanted:
                expected = f"one column {name} of the type {self._types[name]}"
                raise malformed_updates(expected, ", ".join(kinds) or "none", name)

    def _consolidate(self, rows: DataFrame, by: Sequence[str]) -> DataFrame:
        """The rows with diffs summed per value of the columns `by`, and without those whose sum is 0."""
        # Spark groups -0.0 with 0.0 and returns 0.0 for both, so that a value of the data would change
        zeros = [F.when(F.col(c) == 0, F.col(c).cast("string")).alias(f"{_ZERO}{c}") for c in self._doubles]
        summed = rows.groupBy(*by, *zeros).agg(F.sum(DIFF).alias(DIFF)).where(F.col(DIFF) != 0)
        return summed.select(*[_restore_sign(c) if c in self._doubles else c for c in by], DIFF)

    def _store(self, kind: str, updates: DataFrame, *, consolidate: bool = False, n_rows: int = 0) -> StoredBatch:
        handle = self.new_handle(kind)
        # with a literal, Spark forgets that rows are spread and sorted by it, and would shuffle and sort them again
        rows = updates.withColumn(BATCH, F.when(F.col(DIFF).isNotNull(), F.lit(handle)))
        self.write(rows, consolidate=consolidate, n_rows=n_rows)
        return self.stored([handle]).get(handle, StoredBatch(handle, 0, 0, 0, 0))


def batches_of(files: Iterable[FileSummary]) -> dict[str, StoredBatch]:
    """The stored batches whose files these are, by handle; the files' bounds must have the times.

    A checksum has two parts with a dot between: a digest of the columns' types, and one of the files' footers."""
    by_handle: dict[str, list[FileSummary]] = {}
    for file in files:
        by_handle.setdefault(file.partition, []).append(file)
    return {handle: _batch_of(handle, of_batch) for handle, of_batch in by_handle.items()}


def _batch_of(handle: str, files: Sequence[FileSummary]) -> StoredBatch:
    times = [file.bounds[TIME] for file in files]
    least, greatest = min(lo for lo, _ in times), max(hi for _, hi in times)
    n_updates, size = sum(file.rows for file in files), sum(file.size for file in files)
    # rows that a plan keeps beside the table are in no file
    in_files = all(file.footer for file in files)
    checksum = f"{_digest({f.types for f in files})}.{_digest([f.footer for f in files])}" if in_files else ""
    return StoredBatch(handle, n_updates, size, micros(least), micros(greatest), checksum)


def _digest(parts: Iterable[str]) -> str:
    """A digest of parts whose order does not matter; of one part, it is the part itself."""
    ordered = sorted(parts)
    return ordered[0] if len(ordered) == 1 else hashlib.sha256(" ".join(ordered).encode()).hexdigest()[:16]


def _aggregates(door: Frontier) -> list[Column]:
    """The aggregates that `_examine` takes, over the new updates among those that are written."""
    new = F.col(_NEW)
    counts = [
        F.count_if(new & condition) for condition in (F.lit(True), F.col(TIME).isNotNull(), F.col(DIFF).isNotNull())
    ]
    diff, below = F.when(new, F.col(DIFF)), F.when(new & _below(door), F.unix_micros(TIME))
    values = [*counts, F.min(diff), F.max(diff), F.min(below)]
    return [value.alias(name) for name, value in zip(_OBSERVED, values, strict=True)]


def _examine(n_updates: int, n_times: int, n_diffs: int, least: int, greatest: int, *below: int | None) -> Examined:
    """The result of `examine` from its aggregates. Raises MalformedUpdates for a null time or diff."""
    for name, given in ((TIME, n_times), (DIFF, n_diffs)):
        if given != n_updates:
            raise malformed_updates(f"a {name} in every row", f"{n_updates - given} nulls", name)
    return Examined(n_updates, below, n_updates * max(greatest or 0, -(least or 0)))


def _level(buckets: Buckets, seal: int) -> Column:
    """The same as `Buckets.levels` of a row's time, as a column."""
    unit = F.call_function("div", F.unix_micros(TIME) - F.lit(buckets.start), F.lit(buckets.unit))
    differing = unit.bitwiseXOR(F.lit((seal - buckets.start) // buckets.unit))
    return F.when(differing == 0, 0).otherwise(F.least(F.length(F.bin(differing)), F.lit(LEVELS - 1)))


def _plain(type_name: str) -> str:
    return type_name.lower().replace(" ", "")


def _restore_sign(column: str) -> Column:
    return F.when(F.col(f"{_ZERO}{column}") == "-0.0", F.lit(-0.0)).otherwise(F.col(column)).alias(column)


def _instant(time_us: int) -> Column:
    return F.timestamp_micros(F.lit(time_us))


def _below(frontier: Frontier) -> Column:
    """The condition that a row's time is below the frontier; true for all rows if the frontier is empty."""
    return F.lit(True) if frontier.time is None else F.col(TIME) < _instant(frontier.time)
