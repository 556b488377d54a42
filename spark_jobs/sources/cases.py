"""The tests of a source file: rows that arrive drop by drop, and the rows expected after each drop."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from spark_jobs.sources.problems import refuse
from spark_jobs.sources.section import Identifier, Section

Verdict = Literal["passed", "warned", "failed", "quarantined"]


def _as_text(value: Any) -> Any:
    """A date or an instant as YAML reads it, as text again."""
    return value.isoformat() if isinstance(value, date | datetime) else value


Row = dict[str, Any]
Rows = tuple[Row, ...]


class CaseStep(Section):
    """One drop of a test: the rows that arrive, and the expected tables after its run.

    Of an expected row those columns are compared that some expected row of its table names. A table that is left out is
    not compared.
    """

    drop: Annotated[str, BeforeValidator(_as_text)]
    """The drop's date or time."""
    rows: tuple[Row | str, ...] = ()
    """The rows: each a mapping of the source's columns to values as the files have them, or a text, which is a line of
    the file as it is. A column that a mapping leaves out has no value."""
    windows: dict[Identifier, Rows] = Field(default_factory=dict)
    """All rows of the table of each window that is named."""
    states: Rows | None = None
    """All states."""
    late: Rows | None = None
    """All rows of `silver.late`."""
    quarantine: Rows | None = None
    """All rows of `bronze.quarantine`."""
    checks: dict[Identifier, Verdict] = Field(default_factory=dict)
    """The verdicts of checks in this run."""

    @model_validator(mode="after")
    def _check_rows(self) -> CaseStep:
        listed = {"states": self.states, "late": self.late, "quarantine": self.quarantine, **self.windows}
        for name, rows in listed.items():
            if rows and not any(rows):
                raise refuse(f"a column in a row of `{name}`", "rows without columns")
        return self


Case = Annotated[tuple[CaseStep, ...], Field(min_length=1)]
"""A test: its drops in the order in which they are run."""
