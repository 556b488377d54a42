"""The tests of a source file, run: each in a scratch installation, all stages, gates and checks of its drops."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.engine.records import UTF8
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.gates import GateFailed
from spark_jobs.jobs.request import Request
from spark_jobs.sources import Source
from spark_jobs.sources.cases import CaseStep, Row
from spark_jobs.sources.columns import LandingOptions
from spark_jobs.sources.quantities import parse_instant
from spark_jobs.storage.descriptions.column_types import arrow_type_of
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.threads import THREADS, work_alone
from spark_jobs.trials.scratch import Ran, ScratchInstallation

MOST_FILES = 3
"""The most files into which an order splits the rows of a drop."""
_WRITTEN = ("csv", "ndjson", "parquet")


@dataclass(frozen=True)
class CaseDifference:
    """Rows of a table that differ after a drop: those that were expected and are not there, and those that are there
    and were not expected."""

    drop: str
    table: str
    expected: list[Row]
    found: list[Row]


@dataclass(frozen=True)
class CaseResult:
    """The result of a test. `order`: the number of the order in which its rows arrived; 0: as they are written.
    `refused`: the refusal that ended it, if one did."""

    name: str
    order: int
    seconds: float
    differences: list[CaseDifference] = field(default_factory=list)
    refused: str | None = None

    @property
    def passed(self) -> bool:
        """True if all rows were found as expected."""
        return not self.differences and self.refused is None


def run_tests(
    source: Source, text: str, names: Sequence[str] = (), orders: int = 0, seed: int = 0
) -> Iterator[CaseResult]:
    """Run the tests of a source file, those of `names` or all; yields the result of each.

    Args:
        source: the source.
        text: its source file.
        names: the tests to run; none: all.
        orders: the number of other orders in which each test is run again. In such an order the rows of each drop are
            shuffled and split into files, and some drops are run together; then the tables are compared after the last
            of them.
        seed: the number from which orders are drawn.

    Raises:
        ParameterError: the source file has no such test, or no tests can be written for its files.
    """
    unknown = [name for name in names if name not in source.tests]
    if unknown or not source.tests:
        listed = ", ".join(source.tests) or "none"
        raise ParameterError(
            expected=f"a test of {source.name}.yml: {listed}",
            found=", ".join(unknown) or "no `tests`",
            next_step="add `tests:` to the source file; `tidemark schema` describes them",
        )
    if (
        not isinstance(source.landing, LandingOptions)
        or source.landing.format not in _WRITTEN
        or source.landing.envelope is not None
    ):
        raise ParameterError(
            expected=f"a source of files in one of the formats {', '.join(_WRITTEN)}, without an envelope",
            found=_form_of(source),
            consequence="no test was run: rows of tests can't be written as its files have them",
            next_step="test a copy of the source file with `format: ndjson` and without `envelope`: windows and state"
            " are the same",
        )
    runs = [(name, order) for name in names or source.tests for order in range(orders + 1)]
    run = partial(_run_case, source, text, seed=seed)
    if min(len(runs), THREADS) < 2:
        yield from map(run, *zip(*runs, strict=True))
        return
    # processes, not threads: a run of few rows is Python's work. A fork has imported everything already, but must not
    # be made once this process has used `deltalake`, whose threads do not outlive it
    context = multiprocessing.get_context("forkserver" if "deltalake" in sys.modules else "fork")
    with ProcessPoolExecutor(min(len(runs), THREADS), context, initializer=_work_alone) as processes:
        yield from processes.map(run, *zip(*runs, strict=True))


def _form_of(source: Source) -> str:
    """The form in which a source's rows arrive, in words."""
    landing = source.landing
    if not isinstance(landing, LandingOptions):
        return f"a source of {landing.kind}"
    return f"format {landing.format}" + (f" with the envelope {landing.envelope}" if landing.envelope else "")


def _work_alone() -> None:
    work_alone()
    pa.set_cpu_count(1)


def _run_case(source: Source, text: str, name: str, order: int, *, seed: int) -> CaseResult:
    start_s = time.monotonic()
    differences: list[CaseDifference] = []
    refused = None
    with tempfile.TemporaryDirectory(prefix="tidemark-test-") as folder:
        installation = ScratchInstallation.make(Path(folder), source, text)
        draw = random.Random(f"{seed} {name} {order}") if order else None
        try:
            for steps in _slices(source.tests[name], draw):
                differences += _run_steps(installation, steps, draw)
        except TidemarkError as refusal:
            refused = str(refusal)
    return CaseResult(name, order, time.monotonic() - start_s, differences, refused)


def _slices(steps: Sequence[CaseStep], draw: random.Random | None) -> Iterator[Sequence[CaseStep]]:
    """The steps one by one or, in a drawn order, in slices that are run together."""
    begin = 0
    for end in range(1, len(steps) + 1):
        if draw is None or end == len(steps) or draw.random() < 0.5:
            yield steps[begin:end]
            begin = end


def _run_steps(
    installation: ScratchInstallation, steps: Sequence[CaseStep], draw: random.Random | None
) -> Iterator[CaseDifference]:
    """Land and run some steps together, and yield the differences after the last of them."""
    source = installation.source
    drops = [_drop(source, step) for step in steps]
    for place, (step, seq_no) in enumerate(zip(steps, drops, strict=True)):
        _write(installation, step.rows, seq_no, place, draw)
    step, label = steps[-1], source.drops.label(drops[-1])
    failed: GateFailed | None = None
    try:
        ran = installation.run_drops(range(min(drops), max(drops) + 1), Request(pass_gap=True))
    except GateFailed as failure:
        if len(steps) > 1 or "failed" not in step.checks.values():
            raise
        failed, ran = failure, Ran(label, failure.facts["run_id"], ())
    if draw is None and step.checks:
        verdicts = installation.verdicts(ran.run_id)
        verdicts_of_checks = {name: verdicts.get(name, "not judged") for name in step.checks}
        yield from _compare_rows(label, "checks", [dict(step.checks)], [verdicts_of_checks])
    if failed is None:
        yield from _compare_tables(installation, step, label, set() if draw is None else _OF_PLACE)


_OF_PLACE = {"file", "line", "row_id"}
"""Columns that say where a row stood in its files: another order has other files."""


def _compare_tables(
    installation: ScratchInstallation, step: CaseStep, label: str, ignored: Collection[str]
) -> Iterator[CaseDifference]:
    for window, rows in step.windows.items():
        table = installation.windows(installation.definition(window))
        yield from _compare_rows(label, f"silver.{window}", rows, table.to_pylist())
    tables: dict[str, Callable[[], pa.Table]] = {
        "states": installation.states,
        "late": installation.late_rows,
        "quarantine": installation.rejects,
    }
    for name, read in tables.items():
        expected = getattr(step, name)
        if expected is not None:
            plain = [{name: value for name, value in row.items() if name not in ignored} for row in expected]
            yield from _compare_rows(label, name, plain, read().to_pylist())


def _compare_rows(
    drop: str, table: str, expected: Sequence[Row], present_rows: Sequence[Row]
) -> Iterator[CaseDifference]:
    """The rows that are on one side only, in the columns that an expected row names."""
    # nothing expected: whatever is found is shown whole
    columns = list(dict.fromkeys(column for row in expected or present_rows for column in row))
    kinds = {
        column: next((row[column] for row in present_rows if row.get(column) is not None), None) for column in columns
    }
    wanted = [tuple(_canonical(row.get(column), kinds[column]) for column in columns) for row in expected]
    present = [tuple(_canonical(row.get(column), None) for column in columns) for row in present_rows]
    missing, further = Counter(wanted) - Counter(present), Counter(present) - Counter(wanted)
    if missing or further:
        yield CaseDifference(drop, table, _rows_of(columns, missing), _rows_of(columns, further))


def _rows_of(columns: Sequence[str], rows: Counter[tuple[Any, ...]]) -> list[Row]:
    return [dict(zip(columns, row, strict=True)) for row in sorted(rows.elements(), key=repr)]


def _canonical(value: Any, like: Any) -> Any:
    """A value in a form in which equal ones compare equal. `like`: a value of the same column in the table."""
    # a value that can't be read as the column's type stays as it is, and differs
    with suppress(ValueError, ArithmeticError):
        if isinstance(like, datetime) and isinstance(value, str | datetime | date):
            value = instant(parse_instant(value))
        if isinstance(like, Decimal) and isinstance(value, str | int | float):
            value = Decimal(str(value))
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | dict):
        return json.dumps(value, default=str)
    return value


def _drop(source: Source, step: CaseStep) -> int:
    """The number of the drop that a step names.

    Raises:
        ParameterError: it is no date, or before the source's start.
    """
    try:
        time_us = source.drops.time_named(step.drop)
    except (ValueError, OverflowError):
        raise ParameterError(
            expected=f"the date or time of a drop in the tests of {source.name}.yml",
            found=repr(step.drop),
            next_step="write it as 2024-03-01 or 2024-03-01T12:00:00Z",
        ) from None
    return source.drops.seq_nos(time_us, time_us).start


def _write(
    installation: ScratchInstallation, rows: Sequence[Row | str], seq_no: int, place: int, draw: random.Random | None
) -> None:
    """Write the rows of a drop as files of the source's format."""
    files: list[list[Row | str]] = [list(rows)]
    if draw is not None:
        shuffled = draw.sample(list(rows), len(rows))
        cuts = sorted(draw.randint(0, len(rows)) for _ in range(draw.randint(0, MOST_FILES - 1)))
        files = [shuffled[lo:hi] for lo, hi in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    for number, of_file in enumerate(files):
        if of_file:
            path = installation.place(seq_no, f"rows-{place}-{number}.{installation.source.landing.format}")
            path.write_bytes(_encode_rows(installation.source, of_file))


def _encode_rows(source: Source, rows: Sequence[Row | str]) -> bytes:
    """Rows as a file of the source's format."""
    unknown = sorted({name for row in rows if isinstance(row, dict) for name in row} - {*source.columns})
    named = {name: source.header_name(name) for name in source.columns} | {name: name for name in unknown}
    match source.landing.format:
        case "parquet":
            return _as_parquet(source, rows, named)
        case "csv":
            text = _as_csv(source, rows, named)
        case _:
            text = "".join(f"{row if isinstance(row, str) else _as_object(row, named)}\n" for row in rows)
    return text.encode(source.landing.encoding if isinstance(source.landing, LandingOptions) else UTF8)


def _as_object(row: Row, named: Mapping[str, str]) -> str:
    # a column that no record of a file has is a missing one: here it has no value
    return json.dumps({header: row.get(name) for name, header in named.items()}, default=_text, ensure_ascii=False)


def _as_csv(source: Source, rows: Sequence[Row | str], named: Mapping[str, str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=source.landing.delimiter, lineterminator="\n")
    writer.writerow(named.values())
    for row in rows:
        if isinstance(row, str):
            out.write(f"{row}\n")
        else:
            writer.writerow(["" if row.get(name) is None else _text(row[name]) for name in named])
    return out.getvalue()


def _as_parquet(source: Source, rows: Sequence[Row | str], named: Mapping[str, str]) -> bytes:
    objects = [row for row in rows if isinstance(row, dict)]
    if len(objects) < len(rows):
        raise ParameterError(
            expected="rows with columns: a file of Parquet has no lines",
            found=next(repr(row) for row in rows if isinstance(row, str)),
            next_step="write the row as a mapping of columns to values",
        )
    columns = {}
    for name, header in named.items():
        values = [row.get(name) for row in objects]
        kind = arrow_type_of(source.columns[name]) if name in source.columns else None
        if kind is not None and pa.types.is_timestamp(kind):
            values = [None if value is None else parse_instant(value) for value in values]
            columns[header] = pa.array(values, pa.int64()).cast(kind)
        elif kind is not None and (pa.types.is_string(kind) or pa.types.is_decimal(kind)):
            # YAML reads 1 as a number, and 0.10 as 0.1
            columns[header] = pa.array([None if value is None else _text(value) for value in values]).cast(kind)
        else:
            columns[header] = pa.array(values, kind)
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def _text(value: Any) -> str:
    """A value of YAML as a text in a file."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
