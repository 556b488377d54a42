"""The landing of a source's files, and the types that their columns are read as."""

from __future__ import annotations

import codecs
import re
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    PrivateAttr,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from spark_jobs.engine.records import ENCODINGS, UTF8, Envelope
from spark_jobs.plugins.code import Format, Parser, Plugin
from spark_jobs.plugins.folder import FORMATS, plugins
from spark_jobs.sources.drops import LINE_LIMIT
from spark_jobs.sources.problems import did_you_mean, refuse, refuse_in_words, show
from spark_jobs.sources.quantities import PositiveDuration, Size
from spark_jobs.sources.section import Section

COLUMN_TYPES = ("int", "float", "decimal(p, s)", "string", "bool", "timestamp", "date")
"""The types of a column, as a source file writes them."""
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?\)")
_MOST_DIGITS = 38
TYPE_SCHEMA = {
    "type": "string",
    "pattern": rf"^({'|'.join(kind for kind in COLUMN_TYPES if '(' not in kind)}|\s*{_DECIMAL.pattern}\s*)$",
    "examples": [*COLUMN_TYPES],
}
"""The JSON Schema of a column's type."""
EPOCH_FORMATS = ("epoch_s", "epoch_ms", "epoch_us", "epoch_ns")
_LATER_KEYS = ("optional",)
"""Keys of a column that are newer than some lakes: with its default value, such a key is left out of a definition."""
_STRPTIME_DIRECTIVES = frozenset("YmdHMSfzjbBpIy%")
_GREATEST_RECORD = 64 << 20
DIALECT = ("encoding", "escape", "decimal", "thousands", "envelope", "tombstones")
"""Keys of a landing that describe how values are written; with its default value, a key is left out of a definition."""
_PLACEHOLDERS = {"{date}", "{hour}", "{minute}"}


def _default(section: type[Section], key: str) -> Any:
    return section.model_fields[key].default


def check_type(text: Any) -> str:
    """The type in its canonical spelling: `decimal(18,2)` becomes `decimal(18, 2)`; refuses a text that is no type."""
    if not isinstance(text, str) or (text not in COLUMN_TYPES and not text.strip().startswith("decimal")):
        hint = did_you_mean(text, COLUMN_TYPES) if isinstance(text, str) else ""
        raise refuse_in_words(f"one of {', '.join(COLUMN_TYPES)}", f"{show(text)}{hint}")
    if not text.strip().startswith("decimal"):
        return text
    digits = _digits(text)
    if digits is None:
        raise refuse(
            "decimal(p, s): p digits in all, s of them after the point (in braces with quotes around it)", text
        )
    precision, scale = digits
    if not 1 <= precision <= _MOST_DIGITS:
        raise refuse(f"a decimal of 1 to {_MOST_DIGITS} digits in all", text)
    if scale > precision:
        raise refuse(f"a decimal of at most {precision} digits after the point: as many as it has in all", text)
    return f"decimal({precision}, {scale})"


def _digits(text: str) -> tuple[int, int] | None:
    match = _DECIMAL.fullmatch(text.strip())
    return None if match is None else (int(match[1]), int(match[2] or 0))


def _check_timezone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise refuse("the name of a time zone such as UTC or America/New_York", name) from None
    return name


Zone = Annotated[str, AfterValidator(_check_timezone)]
"""The name of an IANA time zone."""


def _check_time_formats(formats: str | tuple[str, ...]) -> str | tuple[str, ...]:
    listed = (formats,) if isinstance(formats, str) else formats
    for text in listed:
        _check_time_format(text)
    if not listed:
        raise refuse("a format, or a list of them", formats)
    return listed[0] if len(listed) == 1 else formats


def _check_time_format(text: str) -> str:
    directives = set(re.findall(r"%(.?)", text))
    is_epoch_or_iso = text == "iso" or text in EPOCH_FORMATS
    if not is_epoch_or_iso and (not directives or not directives <= _STRPTIME_DIRECTIVES):
        raise refuse(
            f"iso, one of {', '.join(EPOCH_FORMATS)}, or a pattern of % directives such as %Y-%m-%d %H:%M", text
        )
    return text


class DeclaredColumn(Section):
    """A column of the files, and the type that its values are read as.

    `format`, `timezone` and `dst` belong to `timestamp` and `date`.
    """

    short_forms: ClassVar = (TYPE_SCHEMA,)

    type: Annotated[str, BeforeValidator(check_type), WithJsonSchema(TYPE_SCHEMA)]
    """The type of the values. A `decimal(p, s)` has p digits in all, s of them after the point."""
    from_: str | None = Field(default=None, alias="from", min_length=1)
    """The name of the column in the files, if it is another one; `meta.owner.id` is a member of nested objects."""
    null_values: tuple[str, ...] | None = None
    """Texts that mean no value, in place of the landing's."""
    optional: bool = False
    """True if a file may lack the column. A file that lacks any other column is rejected whole. A file of NDJSON lacks
    a column if none of its records has it."""
    format: Annotated[str | tuple[str, ...], AfterValidator(_check_time_formats)] = "iso"
    """The form of the text; of several formats the first one that reads the text counts."""
    timezone: Zone = "UTC"
    """The zone of times without an offset."""
    dst: Literal["earliest", "latest", "refuse"] = "refuse"
    """The instant of a local time that a clock change made ambiguous or skipped: the `earliest` or the `latest` of two;
    `refuse` puts the row in quarantine."""

    @model_validator(mode="before")
    @classmethod
    def _accept_a_bare_type(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_time_keys(self) -> DeclaredColumn:
        given = self.model_fields_set & {"format", "timezone", "dst"}
        if given and self.type not in ("timestamp", "date"):
            raise refuse(f"no {', '.join(sorted(given))}: only a timestamp or a date has one", self.type)
        return self

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats of a time, in the order in which they are tried."""
        return (self.format,) if isinstance(self.format, str) else self.format

    @property
    def kind(self) -> str:
        """The type without its digits: `decimal` for `decimal(18, 2)`."""
        return self.type.partition("(")[0]

    @property
    def digits(self) -> tuple[int, int] | None:
        """The number of digits of a decimal, and how many of them are after the point; None for any other type."""
        return _digits(self.type)

    def definition(self) -> dict[str, Any]:
        """The fields that the values read depend on, as plain data."""
        plain = self.model_dump(mode="json", by_alias=True)
        return {
            key: value
            for key, value in plain.items()
            if key not in _LATER_KEYS or value != _default(DeclaredColumn, key)
        }


def _check_path(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise refuse("a path below the landing directory, without `..`", path)
    unknown = set(re.findall(r"\{[^}]*\}?", path)) - _PLACEHOLDERS
    if unknown:
        raise refuse(f"only the placeholders {', '.join(sorted(_PLACEHOLDERS))}", path)
    if any(set(part) & set("*?[") for part in parts[:-1]):
        raise refuse("wildcards in the last part of the path only", path)
    return path


def _check_encoding(name: Any) -> str:
    try:
        encoding = next((e for e in ENCODINGS if codecs.lookup(e).name == codecs.lookup(name).name), None)
    except (LookupError, TypeError):
        encoding = None
    if encoding is None:
        raise refuse_in_words(f"one of {', '.join(ENCODINGS)}", f"{show(name)}{did_you_mean(str(name), ENCODINGS)}")
    return encoding


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _check_format(name: str) -> str:
    of_team = plugins()
    formats = [*FORMATS, *of_team.formats]
    if name not in formats:
        expected = ", ".join([*formats, *of_team.problems])
        raise refuse_in_words(expected, f"{show(name)}{did_you_mean(name, formats)}")
    return name


class LandingOptions(Section):
    """The files of a drop: their place relative to the landing directory, and how they are written.

    The last part of `path` is a pattern for file names (`flights/{date}/*`). Files whose names start with `.` or `_` do
    not belong to the drop: they are still being written. `{date}`, `{hour}`, `{minute}` are taken from the drop's start
    in UTC; for drops of the calendar, `{date}` is a date of the source's time zone. Compression (none, gzip, zstd) is
    recognised by the content.
    """

    kind: Literal["files"] = "files"
    path: Annotated[str, AfterValidator(_check_path)]
    """The folder of a drop below the landing directory, and a pattern for file names."""
    wait_us: PositiveDuration | None = Field(default=None, alias="wait")
    """The time after the end of its drops for which a run in Airflow waits for files of a drop that has none."""
    format: Annotated[str, BeforeValidator(_lower), AfterValidator(_check_format)]
    """`csv`, `ndjson`, `json`, `parquet`, or a format of a plugin."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """The character between the values of a line of CSV."""
    encoding: Annotated[str, BeforeValidator(_check_encoding)] = UTF8
    """The encoding of text files, unless a file begins with a byte order mark."""
    escape: Literal["", "\\"] = ""
    """The character that, within quotes, makes a quote or itself plain text; a second quote does so, too."""
    decimal: Literal[".", ","] = "."
    """The decimal point in numbers that are written as text."""
    thousands: Literal["", ".", ",", " ", "'", "_"] = ""
    """The mark between groups of three digits in numbers that are written as text."""
    envelope: Envelope | None = None
    """A record is an event of Debezium or Maxwell, and becomes the row that it changes."""
    tombstones: Literal["quarantine", "skip"] = "quarantine"
    """The treatment of tombstones: they go to quarantine, or are left out."""
    null_values: tuple[str, ...] = ("",)
    """Texts that mean no value, by default the empty text; null in JSON and Parquet always means none."""
    max_record_bytes: Size = Field(default=1 << 20, alias="max_record")
    """A longer record goes to quarantine."""
    max_rejects: PositiveInt = 10_000
    """The records of a file that are kept in quarantine one by one for each rule; the others are a range of lines."""
    max_lines: Annotated[PositiveInt, Field(lt=LINE_LIMIT)] = LINE_LIMIT - 1
    """A file with more lines is rejected whole."""
    max_expansion: PositiveInt = 200
    """A compressed file of more than 256 MiB and of more than so many times its size, once decompressed, is rejected
    whole."""
    _plugin: Plugin | None = PrivateAttr(default=None)

    def model_post_init(self, _: Any) -> None:
        """Keep the plugin in the source: the process that unpickles the source has no folder of plugins."""
        if self.format not in FORMATS:
            self._plugin = plugins().formats[self.format]

    @property
    def plugin(self) -> Plugin | None:
        """The team's plugin that reads the format; None for a format that ships with Tidemark."""
        return self._plugin

    @property
    def form(self) -> Format:
        """The reader of the files: the name of a format that ships, or the parser of the plugin."""
        return self.format if self._plugin is None else Parser(self._plugin, self.format)  # type: ignore[return-value]

    @field_validator("max_record_bytes")
    @classmethod
    def _check_max_record(cls, value: int) -> int:
        if value > _GREATEST_RECORD:
            raise refuse("at most 64 MiB: a worker has a record in memory several times", value)
        return value

    @model_validator(mode="after")
    def _check_marks(self) -> LandingOptions:
        if self.decimal == self.thousands:
            raise refuse("another mark for `thousands` than for `decimal`", self.thousands)
        if self.envelope is not None and self.format in ("csv", "parquet"):
            raise refuse("no `envelope`: only objects of JSON have one", self.format)
        if self.tombstones == "skip" and self.envelope is None:
            raise refuse("`tombstones` beside an `envelope`", "none")
        return self

    def dialect(self) -> dict[str, Any]:
        """The form of the values in the files, as plain data, without keys that have their default."""
        return {key: value for key in DIALECT if (value := getattr(self, key)) != _default(LandingOptions, key)}

    @model_validator(mode="after")
    def _check_delimiter(self) -> LandingOptions:
        if self.delimiter in '"\r\n' or not self.delimiter.isascii():
            raise refuse("a delimiter that is one ASCII character and neither a quote nor a line end", self.delimiter)
        return self
