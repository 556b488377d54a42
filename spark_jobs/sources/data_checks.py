"""`checks:` of a source file: conditions on the rows that land, and on the tables that a run publishes.

If Great Expectations has an expectation of the kind, a check is that expectation, and Great Expectations judges the
data by it; see `spark_jobs.gates.checks`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, NonNegativeInt, WithJsonSchema, field_validator, model_validator

from spark_jobs.sources.columns import TYPE_SCHEMA, check_type
from spark_jobs.sources.problems import refuse, refuse_in_words
from spark_jobs.sources.quantities import PositiveDuration, format_duration
from spark_jobs.sources.section import Section
from spark_jobs.sources.windows import Names

Severity = Literal["critical", "warning", "info"]
Treatment = Literal["fail", "quarantine", "warn"]
_MOST_SHOWN = 10
Bound = Any
"""A value of the column's type, as the source file has it; `bounds.as_typed` converts it."""

ROWS, STATE = "rows", "state"
"""The tables that a check may be about, beside windows: the rows that land, and the state of the entities."""


def _range(least: Any, greatest: Any) -> str:
    if least is None or greatest is None:
        return f"of at least {least}" if greatest is None else f"of at most {greatest}"
    return f"from {least} to {greatest}"


class CheckBase(Section):
    """The fields that every kind of check has."""

    each_row: ClassVar[bool] = True
    """True if a single row can break the check, so that `mostly` means something."""
    quarantines: ClassVar[bool] = False
    """True if a row can be judged while its file is read."""

    table: str = ROWS
    """`rows` (that land, the default), `state`, or a window by its name, as the run would publish them."""
    mostly: float = Field(default=1.0, ge=0, le=1)
    """The share of rows that must keep the check, if single rows can break it."""
    severity_: Severity | None = Field(default=None, alias="severity")
    """The importance of a failure to people; by default `warning` if the treatment is `warn`, else `critical`."""
    treatment: Treatment = "fail"
    """The effect of a failure. `fail`: nothing is published. `warn`: the run reports it and goes on. `quarantine`: rows
    that break the check go to quarantine, and the others land; with `mostly` in the file, the run fails if a smaller
    share would be left."""
    description: str = ""
    """A text for people about the check."""

    @property
    def severity(self) -> Severity:
        """The importance of a failure: the file's, else `warning` if the treatment is `warn`, else `critical`."""
        return self.severity_ or ("warning" if self.treatment == "warn" else "critical")

    @property
    def least_share(self) -> float:
        """The least share of rows that must keep the check: 0 if the check quarantines and the file has none."""
        return self.mostly if self.treatment != "quarantine" or "mostly" in self.model_fields_set else 0.0

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that the check reads by name."""
        return ()

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _check_treatment(self) -> Self:
        kind_name = _kind_of(type(self))
        if self.treatment == "quarantine" and (not self.quarantines or self.table != ROWS):
            where = kind_name if not self.quarantines else f"one of the table {self.table}"
            kinds = ", ".join(map(_kind_of, _kinds_that_quarantine(CheckBase)))
            raise refuse_in_words(f"fail or warn: only {kinds} of rows quarantine", where)
        if not self.each_row and "mostly" in self.model_fields_set:
            raise refuse_in_words("no `mostly`: only checks that rows break one by one have it", kind_name)
        return self


def _kind_of(check: type[CheckBase]) -> str:
    """The kind that a source file names for a class of checks."""
    return str(get_args(check.model_fields["kind"].annotation)[0])


def _kinds_that_quarantine(base: type[CheckBase]) -> Iterator[type[CheckBase]]:
    """Yield the kinds of checks below a class whose rows may go to quarantine, in the order of their definition."""
    for each in base.__subclasses__():
        if each.quarantines and "kind" in each.model_fields:
            yield each
        yield from _kinds_that_quarantine(each)


class OfColumn(CheckBase):
    """A check of one column."""

    column: str
    """The column that is checked."""

    @property
    def read(self) -> tuple[str, ...]:
        """The check's column."""
        return (self.column,)


class NotNull(OfColumn):
    """Every row has a value."""

    quarantines: ClassVar[bool] = True
    kind: Literal["not_null"]

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return "a value"


class Bounded(Section):
    """Bounds from `min` to `max`, both included; one of them may be left out."""

    min: Bound = None
    """The least value."""
    max: Bound = None
    """The greatest value."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min is None and self.max is None:
            raise refuse_in_words("`min`, `max` or both", "neither")
        return self


class Between(Bounded, OfColumn):
    """Every value is in the bounds; a row without a value keeps the check."""

    quarantines: ClassVar[bool] = True
    kind: Literal["between"]

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"a value {_range(self.min, self.max)}"


class In(OfColumn):
    """Every value is one of `values`; a row without a value keeps the check."""

    quarantines: ClassVar[bool] = True
    kind: Literal["in"]
    values: tuple[Bound, ...] = Field(min_length=1)
    """The values that are right."""

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        more = ", …" if len(self.values) > _MOST_SHOWN else ""
        return f"one of {', '.join(map(str, self.values[:_MOST_SHOWN]))}{more}"


class Matches(OfColumn):
    """Every text matches `pattern` from its beginning to its end; a row without a value keeps the check.

    A pattern must mean the same to RE2 and to Python: no look-around, no back references.
    """

    quarantines: ClassVar[bool] = True
    kind: Literal["matches"]
    pattern: str
    """A regular expression for the whole text."""

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise refuse(f"a regular expression ({error})", pattern) from None
        if re.search(r"\(\?[=!<P]|\\[1-9ZzbB]", pattern.replace("\\\\", "")):
            raise refuse("a regular expression without look-around, names, back references and \\b, \\Z", pattern)
        return pattern

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"text of the form {self.pattern}"


class Unique(CheckBase):
    """No two rows have the same values in all of `columns`; rows in which all of them are null keep the check."""

    kind: Literal["unique"]
    columns: Names
    """The column, or columns, that identify a row."""

    @property
    def read(self) -> tuple[str, ...]:
        """The check's columns."""
        return self.columns

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"no two rows with the same {', '.join(self.columns)}"


class OfType(OfColumn):
    """The values have this type, one of those of `columns:`. For a table it is the type of the published column."""

    each_row: ClassVar[bool] = False
    kind: Literal["type"]
    type: Annotated[str, BeforeValidator(check_type), WithJsonSchema(TYPE_SCHEMA)]
    """The type that each value must have."""

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"values of type {self.type}"


class RowCount(CheckBase):
    """The number of rows is within the bounds.

    For the rows that land, it is the number of all rows that the run's drops have by then. For a table, it is the
    number of all rows that it would publish.
    """

    each_row: ClassVar[bool] = False
    kind: Literal["row_count"]
    min: NonNegativeInt | None = None
    """The least number of rows."""
    max: NonNegativeInt | None = None
    """The greatest number of rows."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min is None and self.max is None:
            raise refuse_in_words("`min`, `max` or both", "neither")
        return self

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"a number of rows {_range(self.min, self.max)}"


class Freshness(OfColumn):
    """The newest time in the column is at most `within` before the end of the run's last drop; no clock is read."""

    each_row: ClassVar[bool] = False
    kind: Literal["freshness"]
    within_us: PositiveDuration = Field(alias="within")
    """The greatest age of the newest time."""

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"a time at most {format_duration(self.within_us)} before the end of the run's last drop"


class NullShare(OfColumn):
    """At most the share `max` of the rows, and at least `min`, have no value."""

    each_row: ClassVar[bool] = False
    kind: Literal["null_share"]
    min: float = Field(default=0.0, ge=0, le=1)
    """The least share of rows without a value."""
    max: float = Field(ge=0, le=1)
    """The greatest share of rows without a value."""

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"a share of rows without a value from {self.min:g} to {self.max:g}"


class LatenessCheck(CheckBase):
    """No row's event time is more than `max` before the start of its drop."""

    quarantines: ClassVar[bool] = True
    kind: Literal["lateness"]
    max_us: PositiveDuration = Field(alias="max")
    """The greatest lateness of a row."""

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        if self.table != ROWS:
            raise refuse_in_words("`table: rows`: only rows land late", self.table)
        return self

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"an event time at most {format_duration(self.max_us)} before the start of the row's drop"


class RateCheck(CheckBase):
    """The rate at which rows come has changed by at most `change`, from drop to drop.

    Rates are rows an hour. The mean rate of the last 5 drops is compared with that of the 10 drops before them (with 10
    to 14 drops, of those that there are); with fewer drops, the check holds. The change is a share of the earlier mean,
    which counts as at least 1.
    """

    each_row: ClassVar[bool] = False
    kind: Literal["rate"]
    change: float = Field(gt=0)
    """The greatest change, as a share: 0.5 is half more, or half less."""

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        if self.table != ROWS:
            raise refuse_in_words("`table: rows`: only rows come at a rate", self.table)
        return self

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"a rate of rows that changes by at most {self.change:.0%} of the rate before"


class OfSql(CheckBase):
    """`sql`, a condition over the columns in Spark's SQL, is true for every row. If it is null, the row breaks it."""

    kind: Literal["sql"]
    sql: str = Field(min_length=1)
    """The condition."""

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"every row with {self.sql}"


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def columns_read(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that the arguments of a Great Expectations expectation name; empty if it may read any column."""
    if arguments.get("row_condition"):
        return ()
    named = [arguments.get(key) for key in ("column", "column_A", "column_B")]
    listed = arguments.get("column_list") or []
    return tuple(dict.fromkeys(name for name in [*named, *listed] if isinstance(name, str)))


class OfExpectation(CheckBase):
    """Any expectation of Great Expectations, or a class of `expectations/custom/`, by its name and its arguments."""

    kind: Literal["expectation"]
    type: str
    """The name of the expectation's class."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The arguments of the expectation."""

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that the arguments name."""
        return columns_read(self.arguments)

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"{self.type} with {', '.join(f'{name} {_as_text(value)}' for name, value in self.arguments.items())}"


DataCheck = Annotated[
    NotNull
    | Between
    | In
    | Matches
    | Unique
    | OfType
    | RowCount
    | Freshness
    | NullShare
    | LatenessCheck
    | RateCheck
    | OfSql
    | OfExpectation,
    Field(discriminator="kind"),
]
"""A check of any kind."""
