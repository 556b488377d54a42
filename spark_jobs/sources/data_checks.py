"""`checks:` of a source file: conditions on the rows that land, and on the tables that a run publishes.

A check is an expectation of Great Expectations, which judges the data by it; see `spark_jobs.gates.checks`. A new kind
is a class here, in the union `DataCheck`.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, WithJsonSchema, field_validator, model_validator

from spark_jobs.sources.check_base import (
    ROWS,
    Bound,
    Bounded,
    CheckBase,
    ExpectationCall,
    Judging,
    OfColumn,
    between_words,
    columns_read,
)
from spark_jobs.sources.columns import TYPE_SCHEMA, check_type
from spark_jobs.sources.problems import refuse, refuse_in_words
from spark_jobs.sources.quantities import PositiveDuration, format_duration, instant_at
from spark_jobs.sources.windows import Names

LATE_BY = "late_by"
"""The column of landed rows with the microseconds from the event time to the start of the drop."""
RATE_CHANGE = "rate_change"
"""The column of the rates of drops with the change from the drops before, as a share; null without enough drops."""
_PANDAS_TYPES = {"int": "int64", "string": "str", "timestamp": "Timestamp", "decimal": "Decimal", "float": "float64"}
"""Type of a source file -> Great Expectations' name for it, where that differs. `bool` is its own name, and it finds
`Decimal` and `date` among pandas' names."""
_MOST_SHOWN = 10


def sql_column(name: str) -> str:
    """The name of the column that is true for rows which meet the SQL condition of a check."""
    return f"check {name}"


class NotNull(OfColumn):
    """Every row has a value."""

    quarantines: ClassVar[bool] = True
    kind: Literal["not_null"]

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return "a value"

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        return ExpectationCall("ExpectColumnValuesToNotBeNull", {"column": self.column})


class Between(Bounded, OfColumn):
    """Every value is in the bounds; a row without a value keeps the check."""

    quarantines: ClassVar[bool] = True
    kind: Literal["between"]

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"a value {between_words(self.min, self.max)}"

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        least, greatest = (given.comparable(self.column, end) for end in (self.min, self.max))
        bounds = {"min_value": least, "max_value": greatest}
        return ExpectationCall("ExpectColumnValuesToBeBetween", {"column": self.column, **bounds})


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

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        values = [given.comparable(self.column, value) for value in self.values]
        return ExpectationCall("ExpectColumnValuesToBeInSet", {"column": self.column, "value_set": values})


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

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        # as RE2, which decides on quarantine: Python's `$` ignores a final newline, its `\d`, `\w` go beyond ASCII
        regex = rf"\A(?a:{self.pattern})\Z"
        return ExpectationCall("ExpectColumnValuesToMatchRegex", {"column": self.column, "regex": regex})


class Unique(CheckBase):
    """No two rows have the same values in all of `columns`; rows in which all of them are null keep the check."""

    of_whole_table: ClassVar[bool] = True
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

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        if len(self.columns) == 1:
            return ExpectationCall("ExpectColumnValuesToBeUnique", {"column": self.columns[0]})
        columns = {"column_list": list(self.columns), "ignore_row_if": "all_values_are_missing"}
        return ExpectationCall("ExpectCompoundColumnsToBeUnique", columns)


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

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        kind = self.type.partition("(")[0]
        arguments = {"column": self.column, "type_": _PANDAS_TYPES.get(kind, kind)}
        return ExpectationCall("ExpectColumnValuesToBeOfType", arguments)


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
        return f"a number of rows {between_words(self.min, self.max)}"

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        return ExpectationCall("ExpectTableRowCountToBeBetween", {"min_value": self.min, "max_value": self.max})


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

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        least = instant_at(given.end_us) - timedelta(microseconds=self.within_us)
        return ExpectationCall("ExpectColumnMaxToBeBetween", {"column": self.column, "min_value": least})


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

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        shares = {"min_value": 1 - self.max, "max_value": 1 - self.min}
        return ExpectationCall("ExpectColumnProportionOfNonNullValuesToBeBetween", {"column": self.column, **shares})


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

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        return ExpectationCall("ExpectColumnValuesToBeBetween", {"column": LATE_BY, "max_value": self.max_us})

    def judged_columns(self, name: str) -> tuple[str, ...]:
        """The column that judging adds to the rows."""
        return (LATE_BY,)


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

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        return ExpectationCall("ExpectColumnValuesToBeBetween", {"column": RATE_CHANGE, "max_value": self.change})

    def judged_columns(self, name: str) -> tuple[str, ...]:
        """The column that judging adds to the rows."""
        return (RATE_CHANGE,)


class OfSql(CheckBase):
    """`sql`, a condition over the columns in Spark's SQL, is true for every row. If it is null, the row breaks it."""

    kind: Literal["sql"]
    sql: str = Field(min_length=1)
    """The condition."""

    @property
    def in_words(self) -> str:
        """The expectation in words, without the column that it is about."""
        return f"every row with {self.sql}"

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        return ExpectationCall("ExpectColumnValuesToBeInSet", {"column": sql_column(given.name), "value_set": [True]})

    def judged_columns(self, name: str) -> tuple[str, ...]:
        """The column that judging adds to the rows."""
        return (sql_column(name),)


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


class OfExpectation(CheckBase):
    """Any expectation of Great Expectations, or a class of `expectations/custom/`, by its name and its arguments."""

    of_whole_table: ClassVar[bool] = True
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

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        return ExpectationCall(self.type, self.arguments)


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
