"""Where a source's rows come from that no files bring: a table of a database, or a topic of Kafka.

What a drop is made of is read once, into files of the landing directory, and lands as such.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, PositiveInt, Tag, model_validator

from spark_jobs.kernels.envelopes import Envelope
from spark_jobs.plugins.code import Format, Plugin
from spark_jobs.sources.columns import Landing
from spark_jobs.sources.drops import LINE_LIMIT
from spark_jobs.sources.problems import refuse
from spark_jobs.sources.quantities import Size, parse_duration
from spark_jobs.sources.section import Identifier, Section

ENDING = ".ndjson.gz"
"""How the names of extracts end."""
OF_TOPIC = "topic-"
"""How the names of those begin that have a topic's messages: topic, partition and the offset of line 1 follow."""
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
Metadata = Literal["key", "partition", "offset", "timestamp", "headers"]
"""What Kafka says of a message beside its value."""


def _check_topic(name: str) -> str:
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise refuse("the name of a topic: at most 249 letters, digits, dots, underscores and dashes", name)
    return name


def _parse_overlap(value: Any) -> dict[str, int]:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return {"ids": value}
    return {"us": parse_duration(value)}


class Extract(Section):
    """What the kinds of landing that read something else than files have in common: they land lines of NDJSON.

    `connection`: a name in the file of connections, which has address, user and password. `null_values`: texts that
    stand for no value; null always does. The limits are those of `Landing`.
    """

    connection: Identifier
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    null_values: tuple[str, ...] = ()
    max_record_bytes: Size = Field(default=1 << 20, alias="max_record")
    max_rejects: PositiveInt = 10_000

    def dialect(self) -> dict[str, Any]:
        """How values are written in the lines, as `Landing.dialect` says it."""
        return {}

    @property
    def max_lines(self) -> int:
        """Lines of a file: extracts are cut long before."""
        return LINE_LIMIT - 1

    @property
    def max_expansion(self) -> int:
        """More than gzip can: what was extracted is no bomb."""
        return 2_000

    @property
    def plugin(self) -> Plugin | None:
        """None: no file of a team reads extracts."""
        return None

    @property
    def form(self) -> Format:
        """What reads the files of extracts."""
        return "ndjson"


class TableLanding(Extract):
    """A table, or a query, of a database that JDBC reaches.

    Either `increasing`, a column by which a drop's rows are told: of a time, those of the drop's interval; of integers,
    those after the last that was read. Or `snapshot: true`: a drop is what differs from the table as it was read last;
    rows that are gone are taken back. `overlap`: how far before its interval (a duration) or its first id (a number) a
    drop looks for rows that came late; those that were read before are left out.
    """

    kind: Literal["table"]
    format: Literal["ndjson"] = "ndjson"
    table: str | None = Field(default=None, min_length=1)
    query: str | None = Field(default=None, min_length=1)
    increasing: str | None = Field(default=None, min_length=1)
    snapshot: bool = False
    overlap: Annotated[dict[str, int] | None, BeforeValidator(_parse_overlap)] = None

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

    A drop goes on where the drop before it ended, up to the first message whose timestamp is the drop's `hi` or later,
    or to the topic's end. `metadata`: what becomes a column beside those of the value: `_key`, `_partition`, `_offset`,
    `_timestamp` (ms since 1970), `_headers`. `tombstones`: what becomes of messages without a value. `lost_offsets`:
    whether messages that Kafka removed before they were read fail a run, or are gone. `envelope`: as in `Landing`.
    """

    kind: Literal["topic"]
    format: Literal["ndjson", "csv"]
    topic: Annotated[str, AfterValidator(_check_topic)]
    header: tuple[str, ...] = ()
    null_values: tuple[str, ...] = ("",)
    metadata: tuple[Metadata, ...] = ()
    tombstones: Literal["quarantine", "skip"] = "quarantine"
    lost_offsets: Literal["fail", "skip"] = "fail"
    envelope: Envelope | None = None

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
        """How values are written in the messages, as `Landing.dialect` says it."""
        return {} if self.envelope is None else {"envelope": self.envelope, "tombstones": self.tombstones}


def place_in_topic(path: str, line: int) -> dict[str, Any]:
    """`topic`, `partition` and `offset` of a line of an extract's file; None each of a file that no topic gave."""
    parts = path.rpartition("/")[2].removesuffix(ENDING).rsplit("-", 2)
    if len(parts) < 3 or not parts[0].startswith(OF_TOPIC) or not (parts[1].isdigit() and parts[2].isdigit()):
        return dict.fromkeys(("topic", "partition", "offset"))
    return {"topic": parts[0].removeprefix(OF_TOPIC), "partition": int(parts[1]), "offset": int(parts[2]) + line - 1}


def _kind(landing: Any) -> str:
    return str(landing.get("kind", "files") if isinstance(landing, dict) else getattr(landing, "kind", "files"))


AnyLanding = Annotated[
    Annotated[Landing, Tag("files")] | Annotated[TableLanding, Tag("table")] | Annotated[TopicLanding, Tag("topic")],
    Discriminator(_kind),
]
"""Where a drop's rows come from."""
