"""Landing the files of a survey: new files are added; changes of landed files are landed as a difference."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.distribution import is_for_here
from spark_jobs.engine.columns import numbers
from spark_jobs.engine.hashes import Hashes
from spark_jobs.engine.records import RULES_VERSION
from spark_jobs.landing import ledger
from spark_jobs.landing.blocks import RECORDS, Blocks, drifts
from spark_jobs.landing.chunking import as_chunks, chunks_here
from spark_jobs.landing.counted import DUPLICATE, REJECT
from spark_jobs.landing.counted_here import chunk_bytes
from spark_jobs.landing.counting import Contest, as_duplicates, contest, counted_row, with_conflict
from spark_jobs.landing.difference import LandingDifference, difference
from spark_jobs.landing.difference_here import difference_here
from spark_jobs.landing.drift import check_drift
from spark_jobs.landing.duplicates_here import ContestHere, contest_here, duplicates_here
from spark_jobs.landing.erasures import erased_values
from spark_jobs.landing.ledger import COUNTS, LANDED, UNREADABLE, Version, ledger_row
from spark_jobs.landing.places import Places
from spark_jobs.landing.reader import read_files
from spark_jobs.landing.survey import Survey
from spark_jobs.landing.suspects import suspects
from spark_jobs.sources import Source
from spark_jobs.storage.delta.dense_files import dense_layout, page_rows
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DUPLICATES, QUARANTINE, chunks, row_columns
from spark_jobs.storage.lakes.lake import FrameLake, Lake, with_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class LandingResult:
    """The result of a landing: the ledger's rows, which make the written data count, and the sums of their counts."""

    rows: list[dict[str, Any]]

    @property
    def totals(self) -> dict[str, int]:
        """The sums of the rows' counts, by the names of `ledger.COUNTS`."""
        return {name: sum(row[name] for row in self.rows) for name in COUNTS}


@dataclass(frozen=True)
class _Hidden:
    """Rows that do not count, since another one does: their ids, and their number in each file, by path."""

    row_ids: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    files: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Landing:
    """One landing of a source. The fence's token is its number, which all rows that it writes carry."""

    lake: Lake
    source: Source
    fence: Fence
    run_id: str

    def land(self, survey: Survey) -> LandingResult:
        """Write chunks, rejects and duplicates; they count once the returned rows of the ledger are written."""
        erased = erased_values(self.lake, self.source)
        blocks = Blocks.of(self.lake.spark, self.source, survey.read, erased)
        try:
            landed = self._add(survey, blocks) if survey.only_adds else None
            if landed is None and self._is_for_here(blocks):
                landed = self._correct_here(survey, blocks)
        finally:
            blocks.forget()
        if landed is not None:
            return landed
        lake = with_frames(self.lake, "the landing of so many rows that change")
        read = read_files(lake.spark, self.source, survey.read, erased).persist()
        try:
            if self.source.unknown_columns == "fail":
                check_drift(self.source, drifts(read))
            return self._correct(lake, survey, read)
        finally:
            read.unpersist()

    def _is_for_here(self, blocks: Blocks) -> bool:
        """True if this process compares the rows that were read with those that count: it reads all of these."""
        if blocks.here is None:
            return False
        return self.lake.spark is None or is_for_here(self.lake.spark, chunk_bytes(self.lake, self.source))

    def _add(self, survey: Survey, blocks: Blocks) -> LandingResult | None:
        """Land files that are new to the ledger; None if one of their rows may count in place of a landed one.

        Raises:
            RowIdsShared: lines of two files would have the same row ids.
        """
        if self.source.unknown_columns == "fail":
            check_drift(self.source, blocks.drifts())
        counted, hashes = blocks.counts()
        contested = self._contest(blocks, hashes)
        n_contested, displacing = contested.totals() if contested else (0, 0)
        if displacing or (n_contested and self.source.duplicates == "last"):
            return None
        versions = {}
        for file in survey.read:
            of_file, before = counted[file.path], survey.before.get(file.path)
            versions[file.path] = Version.of(file, of_file["lines"], before, UNREADABLE if of_file["whole"] else LANDED)
        places = Places.of({**survey.before, **versions}.values(), self.source)
        hidden = self._hide(blocks, contested, places) if contested and n_contested else _Hidden()
        rows = []
        for path, version in versions.items():
            duplicates = hidden.files.get(path, 0)
            counts = {**counted[path], "duplicates": duplicates}
            counts["rows"] -= duplicates
            rows.append(ledger_row(self.source, version, counts, replaces=survey.before.get(path)))
        landed = LandingResult(rows)
        n_rows, entities = landed.totals["rows"], max((c["entities"] for c in counted.values()), default=0)
        if n_rows:
            table = chunks(self.source)
            to = self.lake.destination(table, dense_layout(page_rows(n_rows, entities)))
            files = blocks.write_chunks(self.source, self.fence.token, hidden.row_ids, to)
            self.lake.append_files(table, files)
        if landed.totals["rejects"]:
            self._write_rejects(blocks)
        return landed

    def _write_rejects(self, blocks: Blocks) -> None:
        if blocks.here is not None:
            self._append_here(QUARANTINE, blocks.rejects_here.select(REJECT), {**self._rules, "diff": 1})
            return
        lake = with_frames(self.lake, "a large landing")
        rejects = _came(blocks.rejects.select(*REJECT))
        self._append_rejects(lake, rejects.withColumn("ended", F.lit(None).cast("string")))

    def _contest(self, blocks: Blocks, hashes: Hashes) -> Contest | ContestHere | None:
        """The contested delta_ids; None if there can't be any."""
        if self.source.delta_id is None:
            return None
        suspected = suspects(self.lake, self.source, blocks, hashes)
        if not suspected.size:
            return None
        if self._is_for_here(blocks):
            return contest_here(self.lake, self.source, blocks, suspected)
        return contest(with_frames(self.lake, "a large landing"), self.source, blocks, suspected)

    def _hide(self, blocks: Blocks, contested: Contest | ContestHere, places: Places) -> _Hidden:
        """Write the duplicates; returns their row ids, and their number in each file."""
        if isinstance(contested, ContestHere):
            made = duplicates_here(self.lake, self.source, blocks, contested, places)
            self._append_here(DUPLICATES, made, {"diff": 1})
            return _Hidden(np.sort(made["row_id"].to_numpy()), dict(Counter(made["file"].to_pylist())))
        lake = with_frames(self.lake, "a large landing")
        marked = counted_row(blocks.rows(self.source), contested.ids.localCheckpoint())
        duplicates = marked.where("counted_row_id IS NOT NULL").localCheckpoint()
        row_ids = duplicates.select("row_id").toArrow().column("row_id").to_numpy()
        if row_ids.size:
            good = marked.where("counted_row_id IS NULL")
            compared = with_conflict(lake, self.source, duplicates, good)
            self._append_duplicates(lake, _came(as_duplicates(self.source, compared)))
        of_files, counts = np.unique(places.files(row_ids), return_counts=True)
        files = {places.paths[i]: n for i, n in zip(of_files.tolist(), counts.tolist(), strict=True)}
        return _Hidden(np.sort(row_ids), files)

    def _correct_here(self, survey: Survey, blocks: Blocks) -> LandingResult:
        """Land changes of landed files or rows, as a difference, in this process."""
        if self.source.unknown_columns == "fail":
            check_drift(self.source, blocks.drifts())
        before = ledger.versions(self.lake, self.source)
        made = difference_here(self.lake, self.source, survey, blocks, before)
        counts: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        files, went = made.places.files(numbers(made.rows["row_id"])), numbers(made.rows["diff"]) < 0
        for what, of in (("rows_back", files[went]), ("rows", files[~went])):
            for file, n in zip(*(column.tolist() for column in np.unique(of, return_counts=True)), strict=True):
                counts[made.places.paths[file]][what] += n
        for what, rows in (("rejects", made.rejects), ("duplicates", made.duplicates)):
            records = numbers(rows["records"], null=1).tolist() if what == "rejects" else [1] * rows.num_rows
            for path, diff, n in zip(rows["file"].to_pylist(), rows["diff"].to_pylist(), records, strict=True):
                counts[path][f"{what}_back" if diff < 0 else what] += n
        landed = self._changed_ledger_rows(made.after, before, counts)
        if made.rows.num_rows:
            entities = len(pc.unique(made.rows["entity"]))
            to = self.lake.destination(chunks(self.source), dense_layout(page_rows(made.rows.num_rows, entities)))
            written = to.write([chunks_here(made.rows, self.source, self.fence.token)])
            self.lake.append_files(chunks(self.source), written)
        if made.rejects.num_rows:
            self._append_here(QUARANTINE, made.rejects, self._rules)
        if made.duplicates.num_rows:
            self._append_here(DUPLICATES, made.duplicates, {})
        return landed

    def _changed_ledger_rows(
        self, after: Mapping[str, Version], before: Mapping[str, Version], counts: Mapping[str, Mapping[str, int]]
    ) -> LandingResult:
        """The ledger's rows for the files that have another version now, or another count."""
        concerned = {path for path, version in after.items() if not version.same_as(before.get(path))}
        nothing = dict.fromkeys(COUNTS, 0)
        rows = [
            ledger_row(self.source, after[path], counts.get(path, nothing), replaces=before.get(path))
            for path in sorted({*concerned, *counts})
        ]
        return LandingResult(rows)

    def _correct(self, lake: FrameLake, survey: Survey, read: DataFrame) -> LandingResult:
        """Land changes of landed files or rows, as a difference."""
        before = ledger.versions(lake, self.source)
        made = difference(lake, self.source, survey, read, before)
        counts, entities = self._count_difference(made)
        landed = self._changed_ledger_rows(made.after, before, counts)
        totals = landed.totals
        self._append_chunks(lake, made.rows, totals["rows"] + totals["rows_back"], entities)
        if totals["rejects"] + totals["rejects_back"]:
            self._append_rejects(lake, made.rejects)
        if totals["duplicates"] + totals["duplicates_back"]:
            self._append_duplicates(lake, made.duplicates)
        return landed

    def _count_difference(self, made: LandingDifference) -> tuple[dict[str, dict[str, int]], int]:
        """The counts of rows that come and go, by path; and the approximate greatest number of entities in a file."""
        counts: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        entities = 0
        by_file = made.places.locate(made.rows).groupBy("file", "diff")
        for row in by_file.agg(F.count(F.lit(1)).alias("n"), F.approx_count_distinct("entity").alias("d")).collect():
            counts[row.file]["rows_back" if row.diff < 0 else "rows"] += row.n
            entities = max(entities, row.d)
        for what, frame in (("rejects", made.rejects), ("duplicates", made.duplicates)):
            n = F.sum(F.expr(RECORDS)) if what == "rejects" else F.count(F.lit(1))
            for row in frame.groupBy("file", "diff").agg(n.alias("n")).collect():
                counts[row.file][f"{what}_back" if row.diff < 0 else what] += row.n
        return counts, entities

    def _append_here(self, table: Table, rows: pa.Table, marks: Mapping[str, Any]) -> None:
        """Append rows with `marks` and those of this landing."""
        for name, value in {**marks, **self._marks}.items():
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        self.lake.append_files(table, self.lake.destination(table).write([rows]))

    def _append_chunks(self, lake: FrameLake, rows: DataFrame, n_rows: int, entities: int) -> None:
        if n_rows:
            names = [column.name for column in row_columns(self.source)]
            made = as_chunks(rows.select(*names, "diff"), self.source, self.fence.token)
            lake.append_dense(chunks(self.source), made, page_rows(n_rows, entities))

    def _append_rejects(self, lake: FrameLake, rejects: DataFrame) -> None:
        lake.append(QUARANTINE, _mark(rejects, {**self._rules, **self._marks}).coalesce(1), None)

    def _append_duplicates(self, lake: FrameLake, duplicates: DataFrame) -> None:
        rows = _mark(duplicates.select(*DUPLICATE, "diff"), self._marks)
        lake.append(DUPLICATES, rows.coalesce(1), None)

    @property
    def _rules(self) -> dict[str, Any]:
        """The rules that reject records, as a rejected record is marked with them."""
        return {"rule_version": RULES_VERSION, "definition": self.source.definition_parts()["parse"]}

    @property
    def _marks(self) -> dict[str, Any]:
        """The columns that all rows of this landing have."""
        return {"source": self.source.name, "landing": self.fence.token, "run_id": self.run_id}


def _mark(rows: DataFrame, marks: Mapping[str, Any]) -> DataFrame:
    return rows.withColumns({name: F.lit(value) for name, value in marks.items()})


def _came(rows: DataFrame) -> DataFrame:
    return rows.withColumn("diff", F.lit(1).cast("bigint"))
