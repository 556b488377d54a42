"""The source file's checks and your own suites, judged at the end of the stage that writes the checked rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.definition import definitions
from spark_jobs.engine.columns import numbers
from spark_jobs.engine.measures import hourly, rate_change
from spark_jobs.engine.records import CHECK_PREFIX
from spark_jobs.errors import ParameterError
from spark_jobs.gates import Verdict, refuse_failed
from spark_jobs.gates.checks import Assertion, assertions_about, checked_tables, verify
from spark_jobs.gates.frames import (
    OF_ROW,
    landed_rows,
    published_rows,
    rows_of_drops,
    states,
    with_conditions,
)
from spark_jobs.gates.judging import Checked, judge, on_failure
from spark_jobs.gates.verdicts import MAX_EXAMPLES
from spark_jobs.judging.gate import JudgedRun, Judgement, keep_verdicts
from spark_jobs.landing.counted import rejects_of_drops
from spark_jobs.landing.ledger import PendingLanding, counted_landings, landed_drops, versions
from spark_jobs.landing.places import Places
from spark_jobs.session import is_lost_server
from spark_jobs.sources import (
    LATE_BY,
    RATE_CHANGE,
    ROWS,
    STATE,
    OfSql,
    Problem,
    Source,
    SourceFileError,
    sql_column,
    unknown_name,
)
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.column_types import sql_type_of
from spark_jobs.storage.descriptions.quality_tables import OVERRIDES
from spark_jobs.storage.lakes.lake import Lake, with_frames

_KINDS = ("check", "suite")


def verify_checks(run: JudgedRun, lake: Lake) -> None:
    """Refuse a check that can't be judged, a condition that is no SQL over its table, and an override of no check.

    The lake's Spark resolves the conditions; no table is read.

    Raises:
        SourceFileError: names the checks whose conditions are no SQL over their tables.
        ParameterError: an override names no check, or has no reason.
    """
    source = run.source
    verify(run.settings, source)
    problems = [problem for name, check in source.checks.items() if isinstance(check, OfSql)
                if (problem := _sql_problem(lake, source, name, check)) is not None]  # fmt: skip
    if problems:
        raise SourceFileError(f"{source.name}.yml", problems)
    names = _names(run) if run.overrides else []
    for name, because in run.overrides.items():
        if name not in names:
            raise unknown_name(
                name,
                names,
                expected=f"a check of {source.name} ({', '.join(names) or 'it has none'})",
                consequence="nothing was run; an invariant of the engine can't be overridden",
                next_step="name a check of the source file or of a suite of your own",
            )
        if not because.strip():
            raise ParameterError(
                expected="a reason, which is kept",
                found="none",
                next_step='say it: --because "the sensor was replaced"',
            )


def _names(run: JudgedRun) -> list[str]:
    """The names of all checks, including those of suites."""
    by_engine = [check.name for table in checked_tables(run.source) for check in _assertions(run, table)]
    return [*run.source.quarantining, *by_engine]


def _assertions(run: JudgedRun, table: str) -> list[Assertion]:
    return assertions_about(run.settings, run.source, table, run.interval_us[1])


def _sql_problem(lake: Lake, source: Source, name: str, check: OfSql) -> Problem | None:
    """The problem of a check whose condition is no SQL over its table; None if there is none."""
    from pyspark.errors import PySparkException

    try:
        empty = with_frames(lake, f"the check {name}, a condition in SQL,").spark.createDataFrame(
            [], _columns_as_ddl(source, check.table)
        )
        # asking for the schema has Spark resolve the condition
        _ = empty.select(F.expr(check.sql)).schema
    except PySparkException as error:
        if is_lost_server(error):
            raise
        expected = f"a condition in Spark's SQL over the columns of {check.table}"
        return Problem(f"checks.{name}.sql", expected, f"{check.sql!r}: {str(error).splitlines()[0]}")
    return None


def _columns_as_ddl(source: Source, table: str) -> str:
    """The columns that a condition may name, as a schema in DDL.

    They are taken from the source file, since the tables may not have all of them yet.
    """
    times = ("event_time", "timestamp")
    if table == ROWS:
        of_row = {"row_id": "BIGINT", "entity": "STRING", times[0]: "TIMESTAMP", "seq_no": "BIGINT", LATE_BY: "BIGINT"}
        kinds = {**of_row, **{name: sql_type_of(column) for name, column in source.columns.items()}}
    elif table == STATE and source.state is not None:
        value = "BIGINT" if source.state.datatype == "int64" else "DOUBLE"
        kinds = {source.entity: "STRING", times[1]: "TIMESTAMP", "delta_count": "BIGINT"}
        kinds |= dict.fromkeys(source.state.components, value)
    else:
        definition = next(d for d in definitions(source) if d.name == table)
        kinds = {column.name: column.type for column in definition.table().columns}
    return ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())


def check_landed(
    run: JudgedRun,
    lake: Lake,
    landings: Mapping[int, PendingLanding],
    n_records: int,
    rows_by_drop: Mapping[int, int],
) -> Judgement:
    """Judge the checks of rows on these landings, whose drops have `n_records` records now, rejects included.

    `rows_by_drop`: the rows that each drop has now, of all drops that have landed.

    A check of single rows is judged on the rows that landed. A check of rows together, and one that quarantines, is
    judged on all rows or rejects that the drops have now: for a corrected file, only the rows that differ are landed.

    Raises:
        GateFailed: a check that may stop the run does not hold.
    """
    source = run.source
    about = _about(run, "bronze", f"bronze.{source.name}_chunks", (*OF_ROW, *source.timelines))
    drops = sorted({n for landing in landings.values() for n in landing.drops})
    verdicts = _judge_quarantine(run, lake, about, drops, n_records)
    all_assertions = _assertions(run, ROWS)
    of_rates = [check for check in all_assertions if check.reads == (RATE_CHANGE,)]
    assertions = [check for check in all_assertions if check not in of_rates]
    verdicts += judge(
        *(run.settings, replace(about, shows=("drop", "rows_an_hour")), _rates(source, drops, rows_by_drop)),
        *(of_rates, run.overrides),
        suite="rates",
    )
    alone, together = ([check for check in assertions if check.whole == whole] for whole in (False, True))
    place_of = partial(_add_places, lake, source)
    landed = None
    if not _only_count(assertions):
        landed = landed_rows(lake, source, list(landings), _columns(assertions))
    if alone:
        verdicts += _judge(run, lake, about, ROWS, landed, alone, place_of=place_of)
    if together:
        rows = _rows_of_drops(lake, source, drops, landed, together)
        verdicts += _judge(run, lake, about, f"{ROWS} whole", rows, together, place_of=place_of)
    return _conclude(run, lake, "bronze", verdicts)


def _rates(source: Source, drops: Sequence[int], rows_by_drop: Mapping[int, int]) -> pa.Table:
    """The rate of each of these drops, with its change from the drops before; drops without rows are left out."""
    landed = sorted(rows_by_drop)
    bounds = {n: source.drops.interval(n) for n in landed}
    rates = [hourly(rows_by_drop[n], bounds[n][1] - bounds[n][0]) for n in landed]
    places = [place for place, n in enumerate(landed) if n in drops]
    return pa.table(
        {
            "drop": pa.array([source.drops.label(landed[place]) for place in places], pa.string()),
            "rows_an_hour": pa.array([rates[place] for place in places], pa.float64()),
            RATE_CHANGE: pa.array([rate_change(rates[: place + 1]) for place in places], pa.float64()),
        }
    )


def _only_count(assertions: Sequence[Assertion]) -> bool:
    return all(_counts_rows(check) for check in assertions)


def _rows_of_drops(
    lake: Lake, source: Source, drops: Sequence[int], landed: pa.Table | None, assertions: Sequence[Assertion]
) -> pa.Table:
    """The rows that these drops have now; `landed` itself if those are all of them.

    If the checks only count rows, the table has the right number of rows and no column of theirs.
    """
    of_drops = landed_drops(lake, source)
    count = sum(of_drops[n].rows for n in drops if n in of_drops)
    if _only_count(assertions):
        return pa.table({"row": np.zeros(count, np.int8)})
    if landed is not None and landed.num_rows == count:
        return landed
    return rows_of_drops(lake, source, drops, counted_landings(lake, source), _columns(assertions))


def check_windows(run: JudgedRun, lake: Lake, publication: Publication) -> Judgement:
    """Judge the checks of windows on each window table as the run would publish it after `publication`.

    Raises:
        GateFailed: as `check_landed`.
    """
    verdicts: list[Verdict] = []
    for definition in definitions(run.source):
        about = _about(run, "silver", f"silver.{definition.name}", tuple(definition.identity))
        verdicts += _judge_table(run, lake, publication, about, definition.name)
    return _conclude(run, lake, "silver", verdicts)


def check_states(run: JudgedRun, lake: Lake, publication: Publication) -> Judgement:
    """Judge the checks of states on the states as the run would publish them after `publication`.

    Raises:
        GateFailed: as `check_landed`.
    """
    about = _about(run, "gold", f"gold.{run.source.name}", (run.source.entity,))
    return _conclude(run, lake, "gold", _judge_table(run, lake, publication, about, STATE))


def _about(run: JudgedRun, gate: str, relation: str, shows: tuple[str, ...]) -> Checked:
    return Checked(gate, relation, shows, run.source.name, run.run_id, f"the owner ({run.source.dag.owner})")


def _columns(assertions: Sequence[Assertion]) -> list[str] | None:
    """The columns that the checks read; None if they may read any column."""
    if any(check.condition or not check.reads for check in assertions if not _counts_rows(check)):
        return None
    return sorted({column for check in assertions for column in check.reads})


def _counts_rows(check: Assertion) -> bool:
    return check.expectation.expectation_type.startswith("expect_table_row_count")


def _judge(
    run: JudgedRun,
    lake: Lake,
    about: Checked,
    table: str,
    rows: pa.Table,
    assertions: Sequence[Assertion],
    place_of: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda sample: sample,
) -> list[Verdict]:
    conditions = {sql_column(check.name): check.condition for check in assertions if check.condition}
    if conditions:
        spark = with_frames(lake, f"the check {next(iter(conditions))}, a condition in SQL,").spark
        rows = with_conditions(spark, rows, conditions)
    return judge(run.settings, about, rows, assertions, run.overrides, suite=f"{table} checks", place_of=place_of)


def _judge_table(run: JudgedRun, lake: Lake, publication: Publication, about: Checked, table: str) -> list[Verdict]:
    """The verdicts on a table's checks.

    A check of single rows is judged on the rows that the run changes, every other check on the whole table.
    """
    assertions = _assertions(run, table)
    if not assertions:
        return []
    whole, changed = _of_table(lake, run.source, publication, table, _columns(assertions), token=run.token)
    verdicts = []
    for rows, of in ((changed, False), (whole, True)):
        chosen = [check for check in assertions if check.whole == of]
        verdicts += _judge(run, lake, about, f"{table} whole" if of else table, rows, chosen)
    return verdicts


def _of_table(
    lake: Lake, source: Source, publication: Publication, table: str, columns: Sequence[str] | None, *, token: int
) -> tuple[pa.Table, pa.Table]:
    """The rows that a window table or the states would show, and those of them that `token` wrote."""
    if table == STATE:
        return states(lake, source, [], publication, token)
    definition = next(d for d in definitions(source) if d.name == table)
    of_table = definition.table()
    readable = [c for c in of_table.column_names if c not in ("known_to", "revision")]
    wanted = readable if columns is None else [c for c in readable if c in columns]
    return published_rows(lake, of_table, definition.identity, wanted, publication, token, {})


def _add_places(lake: Lake, source: Source, sample: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a sample, each with the file and line that it comes from."""
    places = Places.of(versions(lake, source).values(), source)
    ids = np.array([row["row_id"] for row in sample], np.int64)
    files = places.files(ids) if ids.size else ids
    placed = []
    for row, row_id, file in zip(sample, ids.tolist(), files.tolist(), strict=True):
        where = {"file": places.paths[file], "line": row_id - int(places.firsts[file]) + 1} if file >= 0 else {}
        placed.append({**where, **row})
    return placed


def _judge_quarantine(
    run: JudgedRun, lake: Lake, about: Checked, drops: Sequence[int], n_records: int
) -> list[Verdict]:
    """A verdict for each check that quarantines, by the records of these drops in quarantine under its name."""
    checks = run.source.quarantining
    if not checks:
        return []
    rules = {name: f"{CHECK_PREFIX}{name}" for name in checks}
    rejects = rejects_of_drops(lake, run.source, drops, rules.values())
    rejected_rows = rejects.select(["seq_no", "file", "line", "reason", "raw"])
    records = numbers(rejects["records"], null=1)
    verdicts = []
    for name, check in checks.items():
        of_check = pc.equal(rejects["rule"], rules[name])
        # a range of lines is one row of quarantine, with as many records
        broken = int(records[of_check.to_numpy()].sum())
        share = (n_records - broken) / n_records if n_records else 1.0
        verdict = Verdict(
            about.gate,
            name,
            check.description or f"{''.join(f'`{c}`: ' for c in check.read)}{check.in_words}",
            f"{broken} of {n_records} rows that break it",
            "quarantined" if broken else "passed",
            expected=f"{check.in_words}, of at least {check.least_share:.4%} of the rows",
            kind="check",
            relation="bronze.quarantine",
            severity=check.severity,
            treatment="quarantine",
            failing=broken,
            sample=tuple(rejected_rows.filter(of_check).slice(0, MAX_EXAMPLES).to_pylist()),
        )
        if broken:
            verdict = _verdict_on_stop(run, about, verdict, holds=share >= check.least_share)
        verdicts.append(verdict)
    return verdicts


def _verdict_on_stop(run: JudgedRun, about: Checked, verdict: Verdict, *, holds: bool) -> Verdict:
    """The verdict on a check that sent rows to quarantine; failed or overridden unless the check `holds`."""
    look = f"`tidemark quarantine list {about.source}` shows them; mend the file, or the check and replay them."
    if holds:
        return replace(verdict, on_failure=look)
    because = run.overrides.get(verdict.name)
    if because is not None:
        return replace(verdict, verdict="overridden", because=because, on_failure=look)
    return replace(verdict, verdict="failed", on_failure=on_failure(about, verdict.name, "fail"))


def _conclude(run: JudgedRun, lake: Lake, gate: str, verdicts: list[Verdict]) -> Judgement:
    """Keep the verdicts, record those that were overridden, and refuse to go on if one of them stops the run."""
    if not verdicts:
        return Judgement()
    keep_verdicts(run.lease, gate, [asdict(verdict) for verdict in verdicts], _KINDS)
    _record_overrides(run, lake, verdicts)
    refuse_failed(gate, verdicts, settings=run.settings, source=run.source.name, run_id=run.run_id)
    answers = [verdict.verdict for verdict in verdicts]
    return Judgement(
        checks=", ".join(f"{answers.count(a)} {a}" for a in dict.fromkeys(answers)),
        not_passed=tuple(f"{v.name} {v.verdict}: {v.observed}" for v in verdicts if v.verdict != "passed"),
    )


def _record_overrides(run: JudgedRun, lake: Lake, verdicts: Sequence[Verdict]) -> None:
    person_and_time = {"overridden_by": run.asked_by, "recorded_at": datetime.now(UTC)}
    rows = [
        {**run.columns, **person_and_time, "name": v.name, "because": v.because}
        for v in verdicts
        if v.verdict == "overridden"
    ]
    if rows:
        lake.record(OVERRIDES, rows)
