"""Tables and queries by JDBC: which rows belong to a drop, and how a row becomes a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, DateType, DecimalType, IntegralType, TimestampNTZType, TimestampType

from spark_jobs.errors import conditions_in
from spark_jobs.extraction.connections import Connection
from spark_jobs.extraction.errors import OriginUnreachable, OriginUnsuitable
from spark_jobs.extraction.readings import ExtractFile, Readings
from spark_jobs.sources import Source
from spark_jobs.sources.extracts import TableLanding
from spark_jobs.sources.quantities import instant_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FORMATS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_SECONDS_TO_CONNECT = "20"
_UNREACHABLE = "FAILED_JDBC.CONNECTION"
"""Spark's error condition for a failed connection; it does not include the driver's own message."""
_NO_DRIVER = ("ClassNotFoundException", "No suitable driver")


@dataclass(frozen=True)
class DatabaseTable:
    """The table or query of a database that a source reads."""

    spark: SparkSession
    source: Source
    landing: TableLanding
    connection: Connection

    @property
    def origin(self) -> str:
        """The table or query, for people."""
        return self.landing.table or f"({self.landing.query})"

    @cached_property
    def frame(self) -> DataFrame:
        """The rows of the table, as a frame; none of them is read yet.

        Raises:
            OriginUnreachable: the database does not answer, or refuses the user.
            OriginUnsuitable: there is no such table, or it lacks columns of the source file.
        """
        options = {"loginTimeout": _SECONDS_TO_CONNECT, "connectTimeout": _SECONDS_TO_CONNECT, "fetchsize": "10000"}
        place = self.landing.table or f"({self.landing.query}) rows_of_query"
        options = {**options, **self.connection.options, "dbtable": place, "preferTimestampNTZ": "true"}
        with self.reading():
            frame = self.spark.read.format("jdbc").options(**options).load()
            names = frame.columns
        wanted = [self.source.header_name(column) for column in self.source.columns]
        wanted += [self.landing.increasing] if self.landing.increasing else []
        if missing := [name for name in wanted if name not in names]:
            raise self._unsuitable(
                f"the columns {', '.join(wanted)}", f"no {', '.join(missing)} among {', '.join(names)}"
            )
        return frame

    def rows(self, seq_no: int, readings: Readings, *, reread: bool) -> tuple[dict[str, Any], DataFrame | None]:
        """The range that is read for a drop, and its rows as lines in the column `text`; None instead of the rows if
        there can't be any.

        The range: `{"snapshot": true}`; `{"from": time, "until": time}`, from `from` and before `until`; or
        `{"after": id, "through": id}`.
        """
        column = self.landing.increasing
        if column is None:
            return {"snapshot": True}, self._lines(self.frame, None)
        kind = self.frame.schema[column].dataType
        overlap = self.landing.overlap or {}
        if isinstance(kind, TimestampType | TimestampNTZType | DateType):
            self._check_overlap(overlap, "us", 'a duration such as "1 day"')
            lo_us, hi_us = self.source.drops.interval(seq_no)
            bounds = {"from": _iso(lo_us - overlap.get("us", 0)), "until": _iso(hi_us)}
            value = F.col(column)
            read = self.frame.where(
                (value >= _bound_of(bounds["from"], kind)) & (value < _bound_of(bounds["until"], kind))
            )
            return bounds, self._lines(read, column)
        if isinstance(kind, IntegralType) or (isinstance(kind, DecimalType) and kind.scale == 0):
            self._check_overlap(overlap, "ids", "a number of ids")
            ids = self._ids(seq_no, readings, column, reread)
            if ids["through"] is None:
                return ids, None
            value = F.col(column)
            read = self.frame.where(value <= F.lit(ids["through"]))
            if ids["after"] is not None:
                read = read.where(value > F.lit(ids["after"] - overlap.get("ids", 0)))
            return ids, self._lines(read, column)
        raise self._unsuitable(f"{column} of times or integers, as it is `increasing`", kind.simpleString())

    def files_to_compare(self, seq_no: int, readings: Readings) -> list[ExtractFile]:
        """The files whose rows are not new to a drop: its own, and those of drops that may have read the same rows."""
        if self.landing.snapshot:
            return readings.files()
        overlap = self.landing.overlap or {}
        every_us = self.source.drops.every_us
        beside = -(-overlap.get("us", 0) // every_us)
        drops = {*range(seq_no - beside, seq_no + beside + 1)}
        if "ids" in overlap and (readings_of_drop := readings.of_drop(seq_no)[-1:] or readings.all[-1:]):
            least = (
                readings_of_drop[0].range.get("after")
                if readings_of_drop[0].seq_no == seq_no
                else readings_of_drop[0].range.get("through")
            ) or 0
            drops |= {r.seq_no for r in readings.all if (r.range.get("through") or 0) > least - overlap["ids"]}
        return readings.files(drops)

    def leaves(self, seq_no: int, readings: Readings, *, reread: bool) -> list[ExtractFile]:
        """The files from which rows are removed once they are no longer in the table."""
        if self.landing.snapshot:
            return readings.files()
        return readings.files([seq_no]) if reread else []

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A context that turns a failure of the database, or of the way there, into an error that names it."""
        with self.connection.scrubbing(self._refusal):
            yield

    def _ids(self, seq_no: int, readings: Readings, column: str, reread: bool) -> dict[str, Any]:
        if reread and (earlier_readings := [r for r in readings.of_drop(seq_no) if "through" in r.range]):
            return dict(earlier_readings[0].range)
        through = max((r.range["through"] for r in readings.all if r.range.get("through") is not None), default=None)
        with self.reading():
            newest = self.frame.agg(F.max(column).alias("newest")).collect()[0].newest
        newest = None if newest is None else int(newest)
        if through is not None and (newest is None or newest < through):
            newest = through
        return {"after": through, "through": newest}

    def _lines(self, frame: DataFrame, first: str | None) -> DataFrame:
        values = [_as_json(field.name, field.dataType) for field in frame.schema]
        line = F.to_json(F.struct(*values), _FORMATS).alias("text")
        if first is None:
            return frame.select(line)
        # by the column, then by the text, so that the order does not depend on the database: equal rows, equal files
        ordered = frame.select(F.col(_quote(first)).alias("by"), line).coalesce(1).sortWithinPartitions("by", "text")
        return ordered.select("text")

    def _check_overlap(self, overlap: dict[str, int], unit: str, expected: str) -> None:
        if overlap and unit not in overlap:
            raise self._unsuitable(f"`overlap` as {expected}, since {self.landing.increasing} has such", "another one")

    def _refusal(self, text: str) -> Exception:
        message = _message(text)
        if any(words in text for words in _NO_DRIVER):
            return self._unsuitable(
                "the JDBC driver of the database among the jars of Spark",
                message,
                "run `make setup-postgresql`, or name another database's driver with TIDEMARK_JDBC_JARS; then `tidemark"
                " down` and `tidemark up`",
            )
        if _UNREACHABLE in conditions_in(text):
            return OriginUnreachable(
                expected=f"the database of the connection {self.connection.name} to answer, and to accept its user and"
                " password",
                found=message,
                consequence="nothing was read",
                next_step="check the connection's url, user and password, that the database runs, and the network; then"
                " run again",
                connection=self.connection.name,
                origin=self.origin,
            )
        return self._unsuitable(f"{self.origin} of the connection {self.connection.name} to be read", message)

    def _unsuitable(self, expected: str, finding: str, next_step: str = "") -> OriginUnsuitable:
        return OriginUnsuitable(
            expected=expected if self.origin in expected else f"{expected}, in {self.origin}",
            found=finding,
            consequence="nothing was read",
            next_step=next_step or f"correct `landing` or `columns` of {self.source.name}.yml, or the table",
            connection=self.connection.name,
            origin=self.origin,
        )


def _message(text: str) -> str:
    """The last message of the driver, Spark or a worker, in the text of a failure with its stacks."""
    message = text.partition("\n\tat ")[0].strip()
    if "Traceback (most recent call last)" in message:
        return message.splitlines()[-1][:300]
    message = message.partition("\n: ")[2] or message
    return " ".join(message.rpartition("ERROR: ")[2].split())[:300]


def _as_json(name: str, kind: Any) -> Column:
    value = F.col(_quote(name))
    if isinstance(kind, DecimalType):
        value = value.cast("string")
    elif isinstance(kind, BinaryType):
        value = F.base64(value)
    return value.alias(name)


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _iso(time_us: int) -> str:
    return f"{instant_at(time_us):%Y-%m-%dT%H:%M:%S.%f}"


def _bound_of(time: str, kind: Any) -> Column:
    at = datetime.fromisoformat(time)
    if isinstance(kind, TimestampNTZType):
        return F.to_timestamp_ntz(F.lit(time))
    if isinstance(kind, TimestampType):
        return F.lit(at.replace(tzinfo=UTC))
    # a date counts as its midnight: of several drops of a day, the one with the midnight has it
    return F.lit((at + timedelta(days=1) - timedelta(microseconds=1)).date())
