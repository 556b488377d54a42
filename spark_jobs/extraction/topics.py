"""Topics of Kafka: which offsets belong to a drop, and how its messages become files.

A file has messages of one partition, and its line n has the message `first + n - 1`. Offsets without a message (they
were compacted away, or mark transactions) are empty lines. So an offset has the same row id whoever reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.extraction.connections import Connection
from spark_jobs.extraction.errors import OffsetsLost, OriginUnreachable, OriginUnsuitable
from spark_jobs.extraction.folder import LandingFolder
from spark_jobs.extraction.lines import LINES_PER_FILE, WRITTEN, WrittenExtract, writing
from spark_jobs.extraction.messages import LineMaker, Message
from spark_jobs.extraction.readings import Readings
from spark_jobs.jvm.scala_code import TOPIC_OFFSETS
from spark_jobs.sources import Source
from spark_jobs.sources.extracts import ENDING, OF_TOPIC, TopicLanding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ranges = dict[int, tuple[int, int]]
"""Partition -> the first offset to read, and the one past the last."""
_FUNCTION = "tidemark_topic_offsets"
_ANSWER_MS = "20000"
_WIDEST_GAP = 100_000
"""The most consecutive offsets without a message that become empty lines; after a wider gap a new file begins."""
_DEFAULTS = {
    "isolation.level": "read_committed",
    "allow.auto.create.topics": "false",
}
_FOR_OFFSETS = {
    # usually just the one message to which Kafka's index by time points
    "max.partition.fetch.bytes": "65536",
    "default.api.timeout.ms": _ANSWER_MS,
    "request.timeout.ms": _ANSWER_MS,
    "socket.connection.setup.timeout.ms": "5000",
}
_NOT_THERE = ("UnknownTopicOrPartitionException", "InvalidTopicException")


@dataclass
class Topic:
    """The topic of Kafka that a source reads. `drops`: the drops that the run reads; the offsets of all their times are
    fetched at once."""

    spark: SparkSession
    source: Source
    landing: TopicLanding
    connection: Connection
    drops: Sequence[int]
    _partitions: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """The topic, for people."""
        return f"topic {self.landing.topic}"

    def ranges(self, seq_no: int, readings: Readings, *, reread: bool) -> Ranges:
        """The offsets of a drop: from the end of the drop before it to the first message at or after its `hi`.

        If the drop before it was never read, it begins with the first message at or after its `lo`, so that the
        messages in between stay that drop's. It never extends beyond the beginning of a later drop.

        Raises:
            OriginUnreachable: Kafka does not answer.
            OriginUnsuitable: there is no such topic.
            OffsetsLost: messages that were not read yet are gone.
        """
        earlier_readings = [r for r in readings.of_drop(seq_no) if r.range]
        if reread and earlier_readings:
            return self._without_lost({int(p): (a, b) for p, (a, b) in earlier_readings[0].range.items()}, again=True)
        lo_us, hi_us = self.source.drops.interval(seq_no)
        before = max((r for r in readings.all if r.seq_no < seq_no), key=lambda r: r.seq_no, default=None)
        after = min((r for r in readings.all if r.seq_no > seq_no), key=lambda r: r.seq_no, default=None)
        ranges: Ranges = {}
        for partition, offsets in self._offsets().items():
            ended = _of(before, partition, 1)
            begins = offsets["first"] if ended is None else ended
            if seq_no > 0 and (before is None or before.seq_no < seq_no - 1):
                begins = max(begins, self._at(offsets, lo_us))
            ends = max(begins, self._at(offsets, hi_us))
            later = _of(after, partition, 0)
            ranges[partition] = (begins, ends if later is None else max(begins, min(ends, later)))
        return self._without_lost(ranges, again=False)

    def write(self, ranges: Ranges, folder: LandingFolder, prefix: str) -> DataFrame:
        """Read these offsets into files `<prefix>/topic-<topic>-<partition>-<first offset>`; the frame has a row for
        each file."""
        topic = self.landing.topic
        first, past = ({str(p): bounds[i] for p, bounds in ranges.items()} for i in (0, 1))
        options = {f"kafka.{name}": value for name, value in _DEFAULTS.items()} | {
            name: value for name, value in self.connection.options.items() if name != "servers"
        }
        options = {
            **options,
            "kafka.bootstrap.servers": self.connection.options["servers"],
            "assign": json.dumps({topic: sorted(ranges)}),
            "startingOffsets": json.dumps({topic: first}),
            "endingOffsets": json.dumps({topic: past}),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
        }
        read = self.spark.read.format("kafka").options(**options).load()
        columns = ("partition", "offset", "value", "key", "unix_millis(timestamp) AS ms", "headers")
        maker = LineMaker(
            self.landing.header,
            self.landing.delimiter,
            self.landing.metadata,
            skips_tombstones=self.landing.tombstones == "skip",
        )
        starts = {p: a for p, (a, _) in ranges.items()}
        return read.selectExpr(*columns).mapInArrow(
            partial(write_messages, folder=folder, prefix=f"{prefix}/{OF_TOPIC}{topic}", starts=starts, maker=maker),
            WRITTEN,
        )

    def refusal(self, text: str) -> Exception:
        """The error that describes a failure, made of Spark's message."""
        low = text.lower()
        if (
            "data source: kafka" in low
            or "classnotfound" in low
            or "can not load class" in low
            or "cannot load class" in low
        ):
            return self._unsuitable(
                "Spark's reader of Kafka among its jars",
                "none",
                "run `make setup-kafka`, then `tidemark down` and `tidemark up`",
            )
        return self._unreachable(" ".join(text.split())[:300])

    def _offsets(self) -> dict[int, dict[str, Any]]:
        """The present offsets of each partition, as Kafka has them: `first`, `next`, and those `at` the starts and ends
        of the drops."""
        if self._partitions:
            return self._partitions
        times = sorted({us // 1000 + (us % 1000 > 0) for n in self.drops for us in self.source.drops.interval(n)})
        client = {
            **_DEFAULTS,
            **_FOR_OFFSETS,
            **{k.removeprefix("kafka."): v for k, v in self.connection.options.items() if k.startswith("kafka.")},
            "bootstrap.servers": self.connection.options["servers"],
        }
        asked = json.dumps({"client": client, "topic": self.landing.topic, "times_ms": times})
        with self.connection.scrubbing(self.refusal):
            self.spark.udf.registerJavaFunction(_FUNCTION, TOPIC_OFFSETS, "string")
            rows = self.spark.createDataFrame([(asked,)], "asked STRING").select(
                F.call_function(_FUNCTION, F.col("asked")).alias("answer")
            )
            answer = json.loads(rows.collect()[0].answer)
        if "error" in answer:
            message = self.connection.without_secrets(f"{answer['error']}: {answer['message']}")[:300]
            if answer["error"] in _NOT_THERE:
                raise self._unsuitable(f"{self.origin} on {self.connection.options['servers']}", message)
            raise self._unreachable(message)
        if not answer["partitions"]:
            raise self._unsuitable(f"{self.origin} on {self.connection.options['servers']}", "no such topic")
        self._partitions = {int(number): partition for number, partition in answer["partitions"].items()}
        return self._partitions

    @staticmethod
    def _at(offsets: Mapping[str, Any], time_us: int) -> int:
        """The first offset at or after a time; the next one that will be written, if there is none yet."""
        return int(offsets["at"].get(str(time_us // 1000 + (time_us % 1000 > 0)), offsets["next"]))

    def _without_lost(self, ranges: Ranges, *, again: bool) -> Ranges:
        """The ranges without offsets that Kafka has removed, if the source file lets them be skipped."""
        offsets = self._offsets()
        there = {p: (offsets[p]["first"], offsets[p]["next"]) if p in offsets else (0, 0) for p in ranges}
        lost = {
            p: [a, min(b, there[p][0]) - 1 if a < there[p][0] else b - 1]
            for p, (a, b) in ranges.items()
            if (a < b and a < there[p][0]) or max(a, b) > there[p][1]
        }
        if lost and self.landing.lost_offsets == "fail":
            available_offsets = ", ".join(f"{a} to {b - 1} of partition {p}" for p, (a, b) in sorted(there.items()))
            missing_offsets = ", ".join(f"{a} to {b} of partition {p}" for p, (a, b) in sorted(lost.items()))
            raise OffsetsLost(
                expected=f"the messages of {self.origin} that "
                + ("the drop was made of" if again else "no drop has read yet"),
                found=f"Kafka has {available_offsets}, not {missing_offsets}",
                consequence="nothing was read",
                next_step="they expired, were deleted, or the topic was made anew; "
                + (
                    "landed messages stay: leave --reread out"
                    if again
                    else f"bring them back, or say `lost_offsets: skip` in {self.source.name}.yml to go on without them"
                ),
                topic=self.landing.topic,
                lost={str(p): bounds for p, bounds in lost.items()},
            )
        return {p: _within(bounds, there[p]) for p, bounds in ranges.items()}

    def _unreachable(self, finding: str) -> OriginUnreachable:
        return OriginUnreachable(
            expected=f"Kafka at {self.connection.options['servers']} to answer, and to let the connection"
            f" {self.connection.name} read {self.origin}",
            found=self.connection.without_secrets(finding),
            consequence="nothing was read",
            next_step="check the connection's servers and kafka.… settings, that the broker runs, and the network; then"
            " run again",
            connection=self.connection.name,
            origin=self.origin,
        )

    def _unsuitable(self, expected: str, finding: str, next_step: str = "") -> OriginUnsuitable:
        return OriginUnsuitable(
            expected=expected,
            found=finding,
            consequence="nothing was read",
            next_step=next_step or f"correct `landing` of {self.source.name}.yml, or make the topic",
            connection=self.connection.name,
            origin=self.origin,
        )


def _of(reading: Any, partition: int, end: int) -> int | None:
    bounds = None if reading is None else reading.range.get(str(partition))
    return None if bounds is None else int(bounds[end])


def _within(bounds: tuple[int, int], there: tuple[int, int]) -> tuple[int, int]:
    first, past = bounds
    if max(bounds) > there[1]:  # the topic was made anew: all of it is new
        return there
    return max(first, min(there[0], max(first, past))), max(first, past)


def write_messages(
    batches: Iterable[pa.RecordBatch],
    *,
    folder: LandingFolder,
    prefix: str,
    starts: Mapping[int, int],
    maker: LineMaker,
    most: int = LINES_PER_FILE,
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over Kafka's partitions, each in the order of its offsets: write files of their messages, and
    describe them."""
    messages = (message for batch in batches for message in _messages(batch))
    message = next(messages, None)
    at: dict[int, int] = {}
    while message is not None:
        partition = message.partition
        begins = at.get(partition, starts[partition])
        if message.offset - begins > _WIDEST_GAP:
            begins = message.offset
        with writing(folder, f"{prefix}-{partition}-{begins}{ENDING}") as file:
            while message is not None and message.partition == partition:
                gap = message.offset - begins - file.lines
                assert gap >= 0, "Spark reads a partition in the order of its offsets"
                if file.lines + gap >= most or gap > _WIDEST_GAP:
                    break
                _add(file, gap, maker.line(message))
                message = next(messages, None)
            at[partition] = begins + file.lines
            description = file.finish()
        if file.rows:
            yield description


def _add(file: WrittenExtract, gap: int, line: bytes | None) -> None:
    file.skip(gap + (line is None))
    if line is not None:
        file.add(line)


def _messages(batch: pa.RecordBatch) -> Iterator[Message]:
    for row in batch.to_pylist():
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        yield Message(row["partition"], row["offset"], row["value"], row["key"], row["ms"], headers)
