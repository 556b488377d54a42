"""A run whose first task shows the run's plan; the run continues once somebody approves the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from _requests import asked_by, open_files_in, stage_request
from airflow.sdk.exceptions import TaskAwaitingInput

from spark_jobs.config import load_settings
from spark_jobs.sources import find_source
from spark_jobs.storage.coordination.kept_plans import applied_plan_id, keep_plan, note_applied
from spark_jobs.storage.descriptions.times import instant_text, micros

if TYPE_CHECKING:
    from spark_jobs.plans.plan import Plan

APPROVE, REJECT = "Approve", "Reject"
PATIENCE = timedelta(days=1)
"""Who gives no answer for so long has rejected the plan: runs of later drops wait for this one."""
SAMPLE = 5
"""Changed rows of a table that are shown."""


def approved_plan(source: str, lo: datetime, hi: datetime, context: Mapping[str, Any]) -> str:
    """The base of the run's plan, as JSON, if an earlier try of this task was approved with an equal plan.

    Otherwise the task shows what the run would change, and its process ends until somebody has answered; it goes on in
    `StageOperator.answered`.

    Raises:
        TidemarkError: a run of these drops would be refused.
    """
    from airflow.sdk.execution_time.hitl import upsert_hitl_detail

    plan = _plan(source, lo, hi, context)
    if applied_plan_id(load_settings().home, context["run_id"]) == plan.plan_id:
        return plan.base.to_json()
    keep_plan(load_settings().home, plan.plan_id, {table.table: table.counts for table in plan.tables})
    verdict = "no published row" if plan.changes_nothing else f"{sum(t.rows for t in plan.tables)} published rows"
    upsert_hitl_detail(
        ti_id=context["ti"].id,
        options=[APPROVE, REJECT],
        defaults=[REJECT],
        subject=f"{source}, {_drops(plan)}: the run would change {verdict}. Approve?",
        body=as_markdown(plan),
        # Airflow's server refuses none
        params={},
    )
    raise TaskAwaitingInput(method_name="answered", kwargs={"planned": plan.base.to_json()}, timeout=PATIENCE)


def rejection(event: Mapping[str, Any]) -> str:
    """Why a run ends that was not approved."""
    if event.get("timedout"):
        return f"nobody approved the plan within {PATIENCE.days * 24} hours: nothing was done"
    return f"the plan was rejected by {answerer(event)}: nothing was done"


def note_plan(run_id: str, planned: str) -> None:
    """Note that the run applies the approved plan, whose numbers its page then shows beside its own."""
    from spark_jobs.jobs.base import Base

    note_applied(load_settings().home, run_id, Base.from_json(planned, "the approved plan").plan_id)


def answerer(event: Mapping[str, Any]) -> str:
    """Who answered."""
    user = event.get("responded_by_user") or {}
    return str(user.get("name") or user.get("id") or "somebody")


def as_markdown(plan: Plan) -> str:
    """The plan as Airflow shows it: the files, the rows of each table that change, and some of them."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    takes = "unknown: nothing ran before" if plan.estimate_s is None else f"about {plan.estimate_s} s"
    yield f"Plan `{plan.plan_id}`; time: {takes}. The plan is valid as long as files, source and lake stay as they are."
    if plan.changed_definition:
        yield f"\n**Changed definition**, accepted with the plan: {', '.join(plan.changed_definition)}"
    if plan.gap is not None:
        yield f"\n**The run would be refused** unless `pass_gap` is set: {_cell(plan.gap)}"
    columns = ["drop", "new", "changed", "known", "taken back", "bytes", "rows", "rejects", "duplicates", "rows back"]
    yield from _table(columns, [drop.figures for drop in plan.drops])
    yield from _table(
        ["published rows of", "inserted", "changed", "removed"], [(t.table, *t.counts.values()) for t in plan.tables]
    )
    for table in plan.tables:
        if table.sample:
            yield f"\n`{table.table}`, the first of {table.rows} rows:"
            yield from _table(*table.sample_rows())


def _table(columns: list[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    if rows:
        yield ""
        yield f"| {' | '.join(columns)} |"
        yield f"| {' | '.join(_rule([row[place] for row in rows]) for place in range(len(columns)))} |"
        yield from (f"| {' | '.join(_cell(value) for value in row)} |" for row in rows)


def _rule(values: Sequence[Any]) -> str:
    """The rule below the head of a column of values: numbers stand right."""
    return "---:" if all(isinstance(value, int | float | None) for value in values) else "---"


def _cell(value: Any) -> str:
    """A value as text that is no Markdown: names and rows come from other people's files."""
    if isinstance(value, datetime):
        text = instant_text(value)
    else:
        text = "" if value is None else f"{value:,}" if type(value) is int else str(value)
    return "".join(f"&#{ord(c)};" if c in "\\`*_{}[]<>()#+!|&~$\n\r" else c for c in text)


def _drops(plan: Plan) -> str:
    labels = [drop.drop for drop in plan.drops]
    if not labels:
        return "no drop"
    return labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"


def _plan(source: str, lo: datetime, hi: datetime, context: Mapping[str, Any]) -> Plan:
    from spark_jobs.plans.plan import plan_run
    from spark_jobs.session import working_session

    settings, params = load_settings(), context["params"]
    with working_session(settings, f"{source}:plan") as session:
        replay = open_files_in(session, params, source, lo, hi) if params.get("replay") else None
        request = stage_request(params, asked_by(context["dag_run"]), None, replay)
        checked, interval_us = find_source(settings.sources, source), (micros(lo), micros(hi))
        return plan_run(settings, checked, interval_us, session, request=request, sample=SAMPLE)
