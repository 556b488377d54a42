"""Reading the drops of a run that no run has read yet, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from spark_jobs.config import Settings
from spark_jobs.extraction.changes import Writer, files_of
from spark_jobs.extraction.connections import connection
from spark_jobs.extraction.folder import LandingFolder
from spark_jobs.extraction.readings import ExtractFile, Reading, Readings, check_there, reveal, sweep, without_rows
from spark_jobs.extraction.tables import DatabaseTable
from spark_jobs.extraction.topics import Topic
from spark_jobs.sources import Source
from spark_jobs.sources.extracts import TableLanding, TopicLanding
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.lakes.lake import Lake, with_frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANS = ".plans"
"""Hidden folder of a source, into which plans read."""


@dataclass
class Extraction:
    """The reading for one run. `plan`: only this process sees the files, which are below the folder of plans; the
    landing directory stays as it is."""

    settings: Settings
    lake: Lake
    source: Source
    fence: Fence
    run_id: str
    plan: bool = False
    readings: Readings = field(init=False)

    def __post_init__(self) -> None:
        self.readings = Readings.load(self.lake, self.source)
        self._landing = LandingFolder(str(self.settings.landing))
        self._into = self._landing.below(_plans(self.source)) if self.plan else self._landing

    @property
    def into(self) -> str:
        """The landing directory in which this run's files are."""
        return self._into.root

    def extract(self, drops: Sequence[int], *, landed: Sequence[int], reread: bool) -> set[int]:
        """Read the drops in `drops` that were not read yet and have not `landed` (`reread`: all of them). Returns the
        drops whose files the readings of `drops` have written.

        Raises:
            TidemarkError: the table or topic can't be read, or a file of an earlier reading is gone.
        """
        # once in a run, however often its stage is tried
        drops_read = {reading.seq_no for reading in self.readings.all if reading.run_id == self.run_id}
        unread = [n for n in drops if (reread and n not in drops_read) or not (self.readings.of_drop(n) or n in landed)]
        if unread:
            # a run may have been killed after its readings counted, before its files had their names
            reveal(self.readings.of_last_run, self._landing)
            if not self.plan:
                sweep(self.readings, unread, self._landing, self.source)
            self._read(unread, [n for n in unread if n not in landed], reread)
            self.readings.commit(self.lake, self.source, self.fence, self.run_id)
        of_drops = [reading for n in drops for reading in self.readings.of_drop(n)]
        for folder in {self._landing, self._into}:
            reveal(of_drops, folder)
        new = self.readings.files(n for n in drops if n not in landed)
        check_there((f for f in new if not self._into.has(f.path)), self._landing, self.source)
        return {file.seq_no for reading in of_drops for file in reading.files}

    @property
    def _spark(self) -> SparkSession:
        return with_frames(self.lake, "reading a table or a topic").spark

    def _read(self, drops: Sequence[int], new: Sequence[int], reread: bool) -> None:
        """Read `drops`, of which `new` have not landed."""
        landing = self.source.landing
        if isinstance(landing, TopicLanding):
            of_kafka = connection(self.settings, landing.connection, "servers")
            topic = Topic(self._spark, self.source, landing, of_kafka, drops)
            for seq_no in drops:
                self._read_topic(topic, seq_no, reread)
        elif isinstance(landing, TableLanding):
            of_database = connection(self.settings, landing.connection, "url")
            table = DatabaseTable(self._spark, self.source, landing, of_database)
            for seq_no in drops:
                self._read_table(table, seq_no, new, reread)

    def _read_topic(self, topic: Topic, seq_no: int, reread: bool) -> None:
        ranges = topic.ranges(seq_no, self.readings, reread=reread)
        bounds_of = {str(partition): list(bounds) for partition, bounds in sorted(ranges.items())}
        files: tuple[ExtractFile, ...] = ()
        if any(first < past for first, past in ranges.values()):
            with topic.connection.scrubbing(topic.refusal):
                files = files_of(topic.write(ranges, self._into, self._folder(seq_no)), {}, seq_no)
        rows = sum(file.rows for file in files)
        self.readings.all.append(Reading(seq_no, self.readings.next_number, topic.origin, bounds_of, rows, files=files))

    def _read_table(self, table: DatabaseTable, seq_no: int, new: Sequence[int], reread: bool) -> None:
        bounds, lines = table.rows(seq_no, self.readings, reread=reread)
        reading = Reading(seq_no, self.readings.next_number, table.origin, bounds)
        if lines is not None:
            compared = table.files_to_compare(seq_no, self.readings)
            lost = [file for file in compared if not self._is_there(file)]
            # the rows of a lost file that has landed stay landed, so they must be known; other lost files are read anew
            check_there((file for file in lost if file.seq_no not in new), self._landing, self.source)
            before = [(file, self._place(file)) for file in compared if file not in lost]
            leaving = [file for file in table.leaves(seq_no, self.readings, reread=reread) if file not in lost]
            with table.reading():
                writer = Writer(self._spark, self._into)
                changes = writer.change(lines, before, leaving, seq_no, self._prefix(seq_no))
            reading = replace(reading, rows=changes.rows, gone=changes.gone, files=changes.files + without_rows(lost))
        self.readings.all.append(reading)

    def _prefix(self, seq_no: int) -> str:
        """The beginning of the paths of a reading's files. For a drop's first reading, it does not depend on the order
        of runs, since row ids must not."""
        folder = self._folder(seq_no)
        again = len(self.readings.of_drop(seq_no))
        return f"{folder}/rows" if not again else f"{folder}/rows-read-again-{again}"

    def _folder(self, seq_no: int) -> str:
        return self.source.drops.path(self.source.path, seq_no).rpartition("/")[0]

    def _is_there(self, file: ExtractFile) -> bool:
        return self._into.has(file.hidden) or self._into.has(file.path) or self._landing.has(file.path)

    def _place(self, file: ExtractFile) -> str:
        """The place from which a file is read now: in this run it may not have its name yet."""
        for path in (file.hidden, file.path):
            if self._into.has(path):
                return self._into.location(path)
        return self._landing.location(file.path)


def forget_plans(settings: Settings, source: Source) -> None:
    """Remove the files that plans of a source have read."""
    if source.extract is not None:
        LandingFolder(str(settings.landing)).remove(_plans(source))


def _plans(source: Source) -> str:
    return f"{source.name}/{PLANS}"
