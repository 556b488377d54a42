"""Landings of rows that do not come in files: from a table of a database, or from a topic of Kafka.

The rows of a drop are read once, into files of the landing directory (extracts), and land from there.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PositiveInt,
    Tag,
    model_validator,
)

from spark_jobs.engine.records import Envelope
from spark_jobs.plugins.code import Format, Plugin
from spark_jobs.sources.columns import LandingOptions
from spark_jobs.sources.drops import LINE_LIMIT
from spark_jobs.sources.problems import refuse
from spark_jobs.sources.quantities import Size, parse_duration
from spark_jobs.sources.section import Identifier, Section

ENDING = ".ndjson.gz"
"""The ending of the names of extracts."""
OF_TOPIC = "topic-"
"""The beginning of the names of a topic's extracts: the topic, the partition and the offset of line 1 follow."""
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
Metadata = Literal["key", "partition", "offset", "timestamp", "headers"]
"""The fields that a Kafka message has beside its value."""


def _check_topic(name: str) -> str:
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise refuse("the name of a topic: at most 249 letters, digits, dots, underscores and dashes", name)
    return name


def _parse_overlap(value: Any) -> dict[str, int]:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return {"ids": value}
    return {"us": parse_duration(value)}


Overlap = Annotated[
    dict[str, int] | None, BeforeValidator(_parse_overlap, json_schema_input_type=str | PositiveInt | None)
]
"""The distance before its interval, in microseconds (`us`), or before its first id (`ids`), that a drop looks back."""


class Extract(Section):
    """The base of the kinds of landing that do not read a source's own files: they land lines of NDJSON."""

    connection: Identifier
    """A name in the file of connections, which has the address, user and password."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """The character between the values of a line of CSV."""
    null_values: tuple[str, ...] = ()
    """Texts that mean no value; null always does."""
    max_record_bytes: Size = Field(default=1 << 20, alias="max_record")
    """A longer record goes to quarantine."""
    max_rejects: PositiveInt = 10_000
    """The records of a file that are kept in quarantine one by one for each rule; the others are a range of lines."""

    def dialect(self) -> dict[str, Any]:
        """The form of the values in the lines, as `Landing.dialect` returns it."""
        return {}

    @property
    def max_lines(self) -> int:
        """The most lines of a file; extracts are cut into files long before that."""
        return LINE_LIMIT - 1

    @property
    def max_expansion(self) -> int:
        """The most times its size to which a file may expand: more than gzip can, as an extract is no bomb."""
        return 2_000

    @property
    def plugin(self) -> Plugin | None:
        """None: no plugin of a team reads extracts."""
        return None

    @property
    def form(self) -> Format:
        """The format of the files of extracts."""
        return "ndjson"


class TableLanding(Extract):
    """A table, or a query, of a database that JDBC reaches.

    Either `increasing` names a column that decides which rows belong to a drop. If its values are times, these are the
    rows of the drop's interval; if they are integers, the rows after the last one that was read. Or `snapshot: true`: a
    drop consists of the differences from the table as it was last read; rows that are gone are taken back.
    """

    kind: Literal["table"]
    format: Literal["ndjson"] = "ndjson"
    """The form in which rows are kept below the landing directory."""
    table: str | None = Field(default=None, min_length=1)
    """The table that is read, if there is no `query`."""
    query: str | None = Field(default=None, min_length=1)
    """The query that is read, if there is no `table`."""
    increasing: str | None = Field(default=None, min_length=1)
    """The column that decides which rows belong to a drop."""
    snapshot: bool = False
    """Read the whole table each time, and land the differences."""
    overlap: Overlap = None
    """The distance before its interval (a duration) or its first id (a number) in which a drop looks for rows that came
    late. Rows that were read before are left out."""

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        if (self.table is None) == (self.query is None):
            raise refuse("either `table` or `query`", "both" if self.table else "neither")
        if (self.increasing is None) != self.snapshot:
            raise refuse("either `increasing: COLUMN` or `snapshot: true`", "both" if self.snapshot else "neither")
        if self.overlap is not None and self.snapshot:
            raise refuse("no `overlap` beside `snapshot`, which reads the whole table", "both")
        return self


class TopicLanding(Extract):
    """A topic of Kafka whose messages are records: objects of JSON (`ndjson`), or lines of CSV with the columns
    `header`.

    A drop begins where the drop before it ended. It ends before the first message whose timestamp is the drop's `hi` or
    later, or at the topic's end.
    """

    kind: Literal["topic"]
    format: Literal["ndjson", "csv"]
    """The form of a message."""
    topic: Annotated[str, AfterValidator(_check_topic)]
    """The name of the topic."""
    header: tuple[str, ...] = ()
    """The columns of a line, if `format` is `csv`."""
    null_values: tuple[str, ...] = ("",)
    """Texts that mean no value; null always does."""
    metadata: tuple[Metadata, ...] = ()
    """The fields of a message that become columns beside those of the value: `_key`, `_partition`, `_offset`,
    `_timestamp` (ms since 1970), `_headers`."""
    tombstones: Literal["quarantine", "skip"] = "quarantine"
    """The treatment of messages without a value: they go to quarantine, or are left out."""
    lost_offsets: Literal["fail", "skip"] = "fail"
    """The treatment of messages that Kafka removed before they were read: the run fails, or goes on without them."""
    envelope: Envelope | None = None
    """A record is an event of Debezium or Maxwell, and becomes the row that it changes."""

    @model_validator(mode="after")
    def _check_header(self) -> Self:
        if (self.format == "csv") != bool(self.header):
            raise refuse("`header`, the names of the columns, where the format is csv, and only there", self.format)
        if self.delimiter in '"\r\n' or not self.delimiter.isascii():
            raise refuse("a delimiter that is one ASCII character and neither a quote nor a line end", self.delimiter)
        if self.envelope is not None and self.format != "ndjson":
            raise refuse("no `envelope`: only objects of JSON have one", self.format)
        return self

    def dialect(self) -> dict[str, Any]:
        """The form of the values in the messages, as `Landing.dialect` returns it."""
        return {} if self.envelope is None else {"envelope": self.envelope, "tombstones": self.tombstones}


def place_in_topic(path: str, line: int) -> dict[str, Any]:
    """`topic`, `partition` and `offset` of a line of an extract; each is None for a file that is no topic's extract."""
    parts = path.rpartition("/")[2].removesuffix(ENDING).rsplit("-", 2)
    if len(parts) < 3 or not parts[0].startswith(OF_TOPIC) or not (parts[1].isdigit() and parts[2].isdigit()):
        return dict.fromkeys(("topic", "partition", "offset"))
    return {"topic": parts[0].removeprefix(OF_TOPIC), "partition": int(parts[1]), "offset": int(parts[2]) + line - 1}


def _kind(landing: Any) -> str:
    return str(landing.get("kind", "files") if isinstance(landing, dict) else getattr(landing, "kind", "files"))


AnyLanding = Annotated[
    Annotated[LandingOptions, Tag("files")]
    | Annotated[TableLanding, Tag("table")]
    | Annotated[TopicLanding, Tag("topic")],
    Discriminator(_kind),
]
"""A landing of any kind: of files, of a table of a database, or of a topic of Kafka."""
