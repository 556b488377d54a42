"""The `checks:` of a source file, and a team's own suites, as expectations of Great Expectations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from expectations.own import OwnFileError, expectation_of, names_any, read_suites
from spark_jobs.config import Settings
from spark_jobs.gates.project import preload
from spark_jobs.sources import (
    ROWS,
    STATE,
    DataCheck,
    Judging,
    Matches,
    OfSql,
    Problem,
    Source,
    SourceFileError,
    as_typed,
    columns_read,
    name_problem,
)
from spark_jobs.sources.quantities import instant_at

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation


@dataclass(frozen=True, slots=True)
class Assertion:
    """An expectation that a table is checked against, with its name, its words, and the consequence of a failure.

    `reads` are the columns that it needs; if empty, it may need any column. `whole`: it is about all rows together, or
    about a share of them. Then it is checked over all rows that the table would publish, or over all landed rows of the
    run's drops. Other expectations are checked only over the rows that the run changes. `condition` is the SQL
    condition that must be true, if the expectation is one about SQL.
    """

    name: str
    kind: str
    words: str
    expected: str
    severity: str
    treatment: str
    expectation: Expectation
    reads: tuple[str, ...]
    whole: bool = False
    condition: str | None = None


def checked_tables(source: Source) -> list[str]:
    """The names of the tables that checks and suites of a source can be about: rows, windows and state."""
    return [ROWS, *source.windows, *([STATE] if source.state is not None else [])]


def assertions_about(settings: Settings, source: Source, table: str, hi_us: int) -> list[Assertion]:
    """The assertions that Great Expectations checks for a table of a source.

    They are those of the source's checks, except checks that quarantine, and those of the team's own suites. `hi_us` is
    the end of the run's last drop, in microseconds.

    Raises:
        SourceFileError: Great Expectations refuses a check, or one of the team's own files cannot be read. Each problem
            names the check or the file.
    """
    assertions, problems = [], []
    suites = read_own(settings)
    # records that a check puts into quarantine are judged as they land, without Great Expectations
    checks = {n: c for n, c in source.checks.items() if c.table == table and c.treatment != "quarantine"}
    if checks:
        preload()
    for name, check in checks.items():
        try:
            assertions.append(_of_check(source, name, check, hi_us))
        except Exception as error:
            message = " ".join(str(error).split())
            problems.append(Problem(f"checks.{name}", "an expectation that Great Expectations takes", message))
    if problems:
        raise SourceFileError(f"{source.name}.yml", problems)
    for suite in suites:
        if suite.name.split(".")[:2] == [source.name, table]:
            assertions += [_of_suite(suite.name, place, each) for place, each in enumerate(suite.expectations)]
    return assertions


def read_own(settings: Settings) -> list[Any]:
    """The suites in the folder of a team's own expectations; Great Expectations then knows its classes, too.

    Raises:
        SourceFileError: a file cannot be read.
    """
    if not names_any(settings.expectations):
        return []
    preload()
    try:
        return read_suites(settings.expectations)
    except OwnFileError as error:
        problem = Problem("", "a suite of Great Expectations, or Python that can be imported", str(error))
        raise SourceFileError(str(settings.expectations), [problem]) from error


def verify(settings: Settings, source: Source) -> None:
    """Make every expectation of a source, and compile its patterns, to find errors before a run.

    Raises:
        SourceFileError: a pattern is refused, a suite is for a table that the source does not have, or
            `assertions_about` raises it.
    """
    bad = [(n, c.pattern, e) for n, c in source.checks.items() if isinstance(c, Matches) and (e := _wrong(c.pattern))]
    if bad:
        problems = [Problem(f"checks.{n}.pattern", f"an expression that RE2 reads ({e})", repr(p)) for n, p, e in bad]
        raise SourceFileError(f"{source.name}.yml", problems)
    _verify_suites(settings, source)
    tables = {ROWS, *source.windows, *(check.table for check in source.checks.values())}
    for table in sorted(tables):
        assertions_about(settings, source, table, source.start_us)


def _verify_suites(settings: Settings, source: Source) -> None:
    """Refuse a suite whose name has this source but none of its tables."""
    tables = checked_tables(source)
    about = [(suite.name, *f"{suite.name}.".split(".")[:2]) for suite in read_own(settings)]
    lost = [(name, table) for name, of, table in about if of == source.name and table not in tables]
    if lost:
        kind = f"table of {source.name} after the first dot"
        raise SourceFileError(
            str(settings.expectations), [name_problem(name, kind, table, tables) for name, table in lost]
        )


def _wrong(pattern: str) -> str | None:
    try:
        pc.match_substring_regex(pa.array([""]), rf"\A(?:{pattern})\z")
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def _of_check(source: Source, name: str, check: DataCheck, hi_us: int) -> Assertion:
    of = f"`{', '.join(check.read)}`: " if check.read else ""
    share = f" in at least {check.mostly:.4%} of the rows" if check.mostly < 1 else ""
    expected = f"{check.in_words}{share}"
    words: dict[str, Any] = {
        "description": check.description or f"{of}{expected}",
        "severity": check.severity,
        "meta": {"name": name},
    }
    if check.mostly < 1:
        words["mostly"] = check.mostly
    call = check.as_expectation(Judging(name, hi_us, partial(_comparable, source)))
    return Assertion(
        name,
        "check",
        check.description or f"{of}{check.in_words}",
        expected,
        check.severity,
        check.treatment,
        expectation_of(call.name, {**call.arguments, **words}),
        check.judged_columns(name),
        whole=not check.each_row or check.mostly < 1 or check.of_whole_table,
        condition=check.sql if isinstance(check, OfSql) else None,
    )


def _comparable(source: Source, name: str, value: Any) -> Any:
    """A value of a check, converted to the type with which Great Expectations compares the pandas column `name`."""
    column = source.columns.get(name)
    if value is None or column is None:
        return value
    plain = as_typed(value, column)
    if column.kind == "timestamp":
        return instant_at(plain)
    if column.kind == "date":
        return date(1970, 1, 1) + timedelta(days=plain)
    return plain


def _of_suite(suite: str, place: int, expectation: Expectation) -> Assertion:
    meta: Mapping[str, Any] = expectation.meta or {}
    severity = str(getattr(expectation.severity, "value", expectation.severity) or "critical")
    name = str(meta.get("name") or f"{suite}.{place + 1}.{expectation.expectation_type}")
    # the result of an expectation is matched with its assertion by this name
    expectation.meta = {**meta, "name": name}
    arguments = expectation.configuration.kwargs
    words = expectation.description or f"{expectation.expectation_type} with {dict(arguments)}"
    treatment = str(meta.get("treatment") or ("fail" if severity == "critical" else "warn"))
    reads = columns_read(arguments)
    return Assertion(name, "suite", words, words, severity, treatment, expectation, reads, whole=True)
