"""The changes between rows that were read and those of earlier readings: new rows, and rows that are gone. Rows are
compared by their text, and a text counts as often as it occurs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.extraction.folder import LandingFolder
from spark_jobs.extraction.lines import LINES, WRITTEN, leave_out, read_lines, write_lines
from spark_jobs.extraction.readings import ExtractFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class ChangedFiles:
    """The files that were written: those with new rows, and rewritten ones without the rows that are gone; the numbers
    of new rows and of rows that are gone."""

    files: tuple[ExtractFile, ...]
    rows: int
    gone: int


@dataclass(frozen=True)
class Writer:
    """Writes files into `folder`."""

    spark: SparkSession
    folder: LandingFolder

    def add(self, lines: DataFrame, seq_no: int, prefix: str) -> tuple[ExtractFile, ...]:
        """Write the rows of one partition, in its order; returns the files."""
        write = partial(write_lines, folder=self.folder, prefix=prefix)
        return files_of(lines.mapInArrow(write, WRITTEN), {}, seq_no)

    def change(
        self,
        lines: DataFrame,
        before: Sequence[tuple[ExtractFile, str]],
        leaving: Sequence[ExtractFile],
        seq_no: int,
        prefix: str,
    ) -> ChangedFiles:
        """Write the rows of `lines` that are not in the files `before`, each given with its location. Rewrite the files
        of `leaving` without their rows that are not in `lines`, if they have any."""
        if not before:
            added = self.add(lines, seq_no, prefix)
            return ChangedFiles(added, sum(file.rows for file in added), 0)
        places = {file.path: place for file, place in before}
        drops = {file.path: file.seq_no for file, _ in before}
        listed = self.spark.createDataFrame([*places.items()], "path STRING, location STRING")
        old = listed.repartition(min(len(places), 16)).mapInArrow(read_lines, LINES)
        of_text = Window.partitionBy("text")
        old = old.withColumn("rank", F.row_number().over(of_text.orderBy("path", "line")))
        new = lines.withColumn("rank", F.row_number().over(of_text.orderBy("text"))).withColumn("read", F.lit(True))
        both = old.join(new, ["text", "rank"], "full_outer").where("path IS NULL OR read IS NULL").persist()
        try:
            came = both.where("path IS NULL").select("text").coalesce(1).sortWithinPartitions("text")
            files = self.add(came, seq_no, prefix)
            may_leave = {file.path for file in leaving}
            going = both.where("read IS NULL").where(F.col("path").isin(sorted(may_leave))) if may_leave else None
            anew, gone = ((), 0) if going is None else self._leave_out(going, places, drops)
        finally:
            both.unpersist()
        return ChangedFiles((*files, *anew), sum(file.rows for file in files), gone)

    def _leave_out(
        self, going: DataFrame, places: dict[str, str], drops: dict[str, int]
    ) -> tuple[tuple[ExtractFile, ...], int]:
        lines = {
            row.path: row.lines for row in going.groupBy("path").agg(F.collect_list("line").alias("lines")).collect()
        }
        if not lines:
            return (), 0
        asked = [(path, places[path], gone) for path, gone in lines.items()]
        frame = self.spark.createDataFrame(asked, "path STRING, location STRING, lines ARRAY<BIGINT>")
        write = partial(leave_out, folder=self.folder)
        written = frame.repartition(min(len(asked), 16)).mapInArrow(write, WRITTEN)
        return files_of(written, drops, -1), sum(len(gone) for gone in lines.values())


def files_of(written: DataFrame, drops: dict[str, int], seq_no: int) -> tuple[ExtractFile, ...]:
    """Run the job that writes the files, and list them. Files in `drops` are of these drops, the others of `seq_no`."""
    rows = sorted(written.collect(), key=lambda row: row.path)
    return tuple(
        ExtractFile(row.path, drops.get(row.path, seq_no), row.hidden, row.rows, row.bytes, row.checksum)
        for row in rows
    )
