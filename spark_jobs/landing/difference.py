"""What stands against what should stand: a changed file, a retraction, another parse rule, a replay and a row that
should have counted first are all landed as the difference of the two.

Concerned are the rows of files that are read anew, moved in their drop or are taken back, the new rows, and all rows
that share a delta_id with one of them. Of these, what is there now goes with diff -1 and what should be there comes
with diff +1, wherever the two are not equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.landing.counting import as_duplicates, resolved
from spark_jobs.landing.ledger import LANDED, RETRACTED, UNREADABLE, Version
from spark_jobs.landing.standing import (
    DUPLICATE,
    REJECT,
    file_of,
    line_of,
    standing_duplicates,
    standing_rejects,
    standing_rows,
)
from spark_jobs.landing.survey import Survey
from spark_jobs.sources import Source
from spark_jobs.sources.drops import FILE_BITS, LINE_BITS
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.row_json import as_json, rows_of_json
from spark_jobs.storage.tables import row_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPLAYED, REPLACED, GONE = "replayed", "replaced", "gone"
Move = tuple[int, int | None]


@dataclass(frozen=True)
class Difference:
    """What to append to make stand what should.

    `rows`: columns of `tables.row_columns` and `diff`. `duplicates`: `standing.DUPLICATE` and `diff`. `rejects`:
    `standing.REJECT`, `diff` and `ended`. `before` and `after`: versions of all files of the source; path -> version.
    """

    rows: DataFrame
    duplicates: DataFrame
    rejects: DataFrame
    before: Mapping[str, Version]
    after: Mapping[str, Version]


def versions_after(found: Survey, unreadable: set[str]) -> dict[str, Version]:
    """The versions of the files that the landing concerns."""
    read = {f.path: Version.of(f, UNREADABLE if f.path in unreadable else LANDED) for f in found.read}
    moved = {v.path: replace(v, rank=rank) for v, rank in found.moved}
    retracted = {v.path: replace(v, kind=RETRACTED) for v in found.retracted}
    return read | moved | retracted


def difference(lake: Lake, source: Source, found: Survey, read: DataFrame, before: Mapping[str, Version]) -> Difference:
    """Compare. `read` are the rows of the files that `found` names, as `reader.read_files` gives them; `before` the
    versions of all files of the source."""
    unreadable = {row.file for row in read.where("line IS NULL").select("file").distinct().collect()}
    concerned = versions_after(found, unreadable)
    after = {**before, **concerned}
    moved = {version.path for version, _ in found.moved}
    names = [column.name for column in row_columns(source)]
    new = read.where("rule IS NULL").select(*names)
    present = _Present.of(lake, source, new, _moves(found, before, concerned))
    told = resolved(source, present.stays(source).unionByName(new)).localCheckpoint()
    paths = _frame(lake, "key BIGINT, file STRING", [(v.key, p) for p, v in after.items() if v.kind != RETRACTED])
    rows = _row_changes(source, present.counted.select(*names), told.where("counted_row_id IS NULL").select(*names))
    hidden = told.where("counted_row_id IS NOT NULL").withColumn("key", file_of("row_id"))
    placed = hidden.join(F.broadcast(paths), "key", "left").withColumn("line", line_of("row_id"))
    duplicates = _net(present.duplicates.select(*DUPLICATE), as_duplicates(source, placed))
    return Difference(
        rows.localCheckpoint(),
        duplicates.localCheckpoint(),
        _rejects(lake, source, read, {p: v for p, v in concerned.items() if p not in moved}).localCheckpoint(),
        before,
        after,
    )


def _moves(found: Survey, before: Mapping[str, Version], concerned: Mapping[str, Version]) -> list[Move]:
    """Per file whose rows go or get other ids: what those have before the line now, and then (None: gone)."""
    moves: list[Move] = []
    read = {file.path for file in found.read}
    for path, now in concerned.items():
        earlier = before.get(path)
        if earlier is None or earlier.kind == RETRACTED:
            continue
        stays = now.kind == UNREADABLE or (path not in read and now.kind != RETRACTED)
        if not stays or now.key != earlier.key:
            moves.append((earlier.key, now.key if stays else None))
    return moves


@dataclass(frozen=True)
class _Present:
    """What is there now of what is concerned. `counted`: rows of chunks. `duplicates`: the columns `DUPLICATE`. Both
    with `moves` (null: their file stays as it is) and `new_key`, what their ids will have before the line (null: they
    go)."""

    counted: DataFrame
    duplicates: DataFrame

    @classmethod
    def of(cls, lake: Lake, source: Source, new: DataFrame, moves: list[Move]) -> _Present:
        listed = F.broadcast(
            _frame(lake, "key BIGINT, new_key BIGINT, moves BOOLEAN", [(old, to, True) for old, to in moves])
        )

        def marked(rows: DataFrame, how: str) -> DataFrame:
            return rows.withColumn("key", file_of("row_id")).join(listed, "key", how).drop("key")

        drops = [old >> FILE_BITS for old, _ in moves]
        near = F.col("seq_no").between(min(drops), max(drops)) if drops else F.lit(False)
        of_files = marked(standing_rows(lake, source, near), "inner").localCheckpoint()
        duplicates = marked(standing_duplicates(lake, source), "left").localCheckpoint()
        if source.delta_id is None:
            return cls(of_files, duplicates.where("moves"))
        shared = [frame.select("delta_id") for frame in (new, of_files, duplicates.where("moves"))]
        ids = reduce(lambda a, b: a.unionByName(b), shared).distinct().localCheckpoint()
        others = marked(standing_rows(lake, source).join(ids, "delta_id", "left_semi"), "left").where("moves IS NULL")
        counted = of_files.unionByName(others.select(*of_files.columns)).localCheckpoint()
        return cls(counted, duplicates.join(ids, "delta_id", "left_semi").localCheckpoint())

    def stays(self, source: Source) -> DataFrame:
        """The rows that stay, with the ids that they will have: columns of `tables.row_columns`."""
        names, marks = [column.name for column in row_columns(source)], ("new_key", "moves")
        hidden = rows_of_json(self.duplicates, source, *marks)
        rows = self.counted.select(*names, *marks).unionByName(hidden).where("moves IS NULL OR new_key IS NOT NULL")
        moved = F.shiftleft("new_key", LINE_BITS) + line_of("row_id")
        return rows.withColumn("row_id", F.coalesce(moved, "row_id")).select(*names)


def _rejects(lake: Lake, source: Source, read: DataFrame, concerned: Mapping[str, Version]) -> DataFrame:
    """Of files that are read or taken back. Of an unreadable one what was rejected before stays, but for the file's own
    rejection."""
    listed = [(p, v.kind == UNREADABLE, v.kind == RETRACTED) for p, v in concerned.items()]
    of_files = _frame(lake, "file STRING, unreadable BOOLEAN, retracted BOOLEAN", listed)
    stood = standing_rejects(lake, source).join(F.broadcast(of_files), "file")
    leaving = stood.where("NOT unreadable OR line IS NULL")
    net = _net(leaving.select(*REJECT), read.where("rule IS NOT NULL").select(*REJECT))
    places = read.where("line IS NOT NULL").select("file", "line", F.col("rule").isNull().alias("good"))
    known = net.join(places, ["file", "line"], "left").join(F.broadcast(of_files), "file", "left")
    readable = F.when(F.col("line").isNull(), ~F.col("unreadable")).otherwise(F.col("good"))
    why = (
        F.when(F.col("retracted"), RETRACTED)
        .when(readable, REPLAYED)
        .when(readable.isNotNull(), REPLACED)
        .otherwise(GONE)
    )
    return known.withColumn("ended", F.when(F.col("diff") < 0, why)).select(*REJECT, "diff", "ended")


def _row_changes(source: Source, before: DataFrame, after: DataFrame) -> DataFrame:
    """`_net` of rows, whose texts are compared: as values, to Spark, -0.0 is 0.0."""
    text = as_json(source).alias("text")

    def missing(rows: DataFrame, others: DataFrame, diff: int) -> DataFrame:
        texts = others.select("row_id", text)
        absent = rows.withColumn("text", text).join(texts, ["row_id", "text"], "left_anti")
        return absent.select(*rows.columns, F.lit(diff).cast("bigint").alias("diff"))

    return missing(before, after, -1).unionByName(missing(after, before, 1))


def _net(before: DataFrame, after: DataFrame) -> DataFrame:
    """Rows that go (`diff` -1) and come (+1) between two sets of rows with the same columns."""
    both = before.withColumn("diff", F.lit(-1).cast("bigint")).unionByName(
        after.withColumn("diff", F.lit(1).cast("bigint"))
    )
    return both.groupBy(*before.columns).agg(F.sum("diff").alias("diff")).where("diff <> 0")


def _frame(lake: Lake, schema: str, rows: Sequence[tuple[object, ...]]) -> DataFrame:
    return lake.spark.createDataFrame(rows, schema)
