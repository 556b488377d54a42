"""The parts that all kinds of checks of a source file share: their fields, their words, the expectation behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from spark_jobs.sources.problems import refuse_in_words
from spark_jobs.sources.section import Section

Severity = Literal["critical", "warning", "info"]
Treatment = Literal["fail", "quarantine", "warn"]
Bound = Any
"""A value of the column's type, as the source file has it; `bounds.as_typed` converts it."""

ROWS, STATE = "rows", "state"
"""The tables that a check may be about, beside windows: the rows that land, and the state of the entities."""


def between_words(least: Any, greatest: Any) -> str:
    """Bounds, of which one may be None, in words such as `from 1 to 5`."""
    if least is None or greatest is None:
        return f"of at least {least}" if greatest is None else f"of at most {greatest}"
    return f"from {least} to {greatest}"


@dataclass(frozen=True, slots=True)
class ExpectationCall:
    """An expectation by the name of its class, and its arguments, without `mostly`, severity and words."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judging:
    """The circumstances in which a check is judged.

    Attributes:
        name: the name of the check.
        end_us: the end of the run's last drop, in microseconds.
        comparable: converts a value of the source file, for the column that it names, to the type that is compared.
    """

    name: str
    end_us: int
    comparable: Callable[[str, Any], Any]


class CheckBase(Section):
    """The fields that every kind of check has."""

    each_row: ClassVar[bool] = True
    """True if a single row can break the check, so that `mostly` means something."""
    quarantines: ClassVar[bool] = False
    """True if a row can be judged while its file is read."""
    of_whole_table: ClassVar[bool] = False
    """True if the check has to be judged over all rows of a table, also if single rows break it."""

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

    def as_expectation(self, given: Judging) -> ExpectationCall:
        """The check as a call of an expectation of Great Expectations."""
        raise NotImplementedError

    def judged_columns(self, name: str) -> tuple[str, ...]:
        """The columns that the expectation of the check `name` reads; empty if it may read any column."""
        return self.read

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


def columns_read(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that the arguments of a Great Expectations expectation name; empty if it may read any column."""
    if arguments.get("row_condition"):
        return ()
    named = [arguments.get(key) for key in ("column", "column_A", "column_B")]
    listed = arguments.get("column_list") or []
    return tuple(dict.fromkeys(name for name in [*named, *listed] if isinstance(name, str)))
