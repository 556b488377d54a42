"""`run`: the pipeline for a range of drops without Airflow; `prepare`: the sample's files."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import (
    FIRST_DROP,
    LAST_DROP,
    AcceptDefinitionOption,
    FileOption,
    PassGapOption,
    SourceArgument,
    drops_between,
    drops_each,
    instant,
    known_source,
)
from spark_jobs.cli.hints import hints
from spark_jobs.cli.output import JsonOption, emit, note, show, table
from spark_jobs.cli.progress import working
from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.model import LAST, STAGED, pluralize
from spark_jobs.storage.coordination.kept_plans import note_applied
from spark_jobs.storage.descriptions.times import instant as of_micros
from spark_jobs.storage.descriptions.times import micros

if TYPE_CHECKING:
    from spark_jobs.jobs.base import Base
    from spark_jobs.jobs.pipeline import RunReport
    from spark_jobs.sources import Source


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(run)
    app.command()(prepare)


def run(
    source: SourceArgument,
    first: Annotated[str | None, typer.Option("--from", help=FIRST_DROP)] = None,
    last: Annotated[str | None, typer.Option("--to", help=f"{LAST_DROP} Default: that of --from.")] = None,
    each: Annotated[
        bool,
        typer.Option("--each", help="Run and publish the drops one by one, so that each has its own visible time."),
    ] = False,
    file: FileOption = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Apply the plan in this file; refused if it is stale.", dir_okay=False)
    ] = None,
    accept_definition: AcceptDefinitionOption = False,
    pass_gap: PassGapOption = False,
    reread: Annotated[
        bool, typer.Option("--reread", help="Read drops of a table or topic once more; only differences land.")
    ] = False,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", help="A check that may fail in this run; with --because. Repeatable."),
    ] = None,
    because: Annotated[str, typer.Option("--because", help="Why; kept in quality.overrides.")] = "",
    wait: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds to wait for other runs of the source, 0: not at all; default: as long as it takes."
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Run drops of a source, from their files to published tables.

    The stages land, seal, window, compact and publish run without Airflow. A range is published at one time, that of
    its end: a read as of a time within the range does not distinguish its drops. Runs of a source follow one another:
    a run waits for earlier ones, in Airflow too, and prints their names. Ctrl-C cancels the Spark work; a run that was
    given up can't change the writes of a later run.
    """
    from spark_jobs.jobs.request import Request

    settings = load_settings()
    checked = known_source(settings, source)
    planned = None if plan is None else _read_base(checked, plan, file, first, last, each or None)
    overrides = _overrides(override or [], because)
    request = Request(
        only_file=file, accept_definition=accept_definition, pass_gap=pass_gap, overrides=overrides, reread=reread
    )
    if planned is not None:
        request = Request.of_plan(planned, pass_gap=pass_gap, overrides=overrides)
        intervals = [(of_micros(planned.lo_us), of_micros(planned.hi_us))]
    else:
        intervals = _intervals(checked, first, last, each=each)
    documents = []
    for lo, hi in intervals:
        with working(f"run {source} {_first_to_last(checked, lo, hi)}") as report_step:
            options = {"request": request, "on_stage": report_step}
            report = run_source(settings, source, lo, hi, prefix="cli", wait_s=wait, **options)
        documents.append(document(report))
        if planned is not None:
            note_applied(settings.home, report.run_id, planned.plan_id)
        if not as_json:
            show(for_people(report))
    if as_json:
        emit(as_json, documents if each else documents[0], str)


def _intervals(source: Source, first: str | None, last: str | None, *, each: bool) -> list[tuple[datetime, datetime]]:
    """The intervals to run, one after another: that of all drops, or `each` drop's; without `last` there is one."""
    if first is None:
        raise ParameterError(expected="--from, or --plan", found="neither", next_step="name the drops to run")
    last = first if last is None else last
    return drops_each(source, first, last) if each else [drops_between(source, first, last)]


def _first_to_last(source: Source, lo: datetime, hi: datetime) -> str:
    """The drops of an interval as people name them."""
    drops = source.drops.drops_spanned(micros(lo), micros(hi))
    first, last = source.drops.label(drops[0]), source.drops.label(drops[-1])
    return first if first == last else f"{first} to {last}"


def _overrides(names: list[str], because: str) -> dict[str, str]:
    """The reason for each check that may fail."""
    if bool(names) == bool(because.strip()):
        return dict.fromkeys(names, because.strip())
    raise ParameterError(
        expected="--override CHECK and --because REASON together",
        found="--override alone" if names else "--because alone",
        next_step="name the check and the reason, which is kept in quality.overrides",
    )


def run_source(
    settings: Settings,
    source: str,
    lo: datetime,
    hi: datetime,
    *,
    prefix: str,
    wait_s: float | None = None,
    **options: Any,
) -> RunReport:
    """`run_pipeline` in its turn among the runs of the source, those in Airflow too; `prefix` begins its run id."""
    from spark_jobs.jobs.pipeline import new_run_id, run_pipeline
    from spark_jobs.server.airflow_runs import AirflowRuns

    return run_pipeline(
        settings,
        source,
        lo,
        hi,
        run_id=new_run_id(prefix),
        driver=AirflowRuns(settings, source, known_source(settings, source).drops),
        wait_s=wait_s,
        on_wait=lambda whom: note(f"waits for {whom}"),
        **options,
    )


def _read_base(source: Source, plan: Path, *others: str | bool | None) -> Base:
    from spark_jobs.jobs.base import Base, PlanUnreadable

    if any(other is not None for other in others):
        raise ParameterError(
            expected="--plan alone", found="--plan with --from, --to, --each or --file", next_step="leave them out"
        )
    try:
        text = plan.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanUnreadable(
            expected="a file that `tidemark plan --save` wrote",
            found=f"{plan}: {error}",
            consequence="nothing was run",
            next_step="name the file that the plan was saved in",
            path=str(plan),
        ) from None
    planned = Base.from_json(text, str(plan))
    if planned.source != source.name:
        raise ParameterError(
            expected=f"a plan of {source.name}",
            found=f"one of {planned.source}",
            next_step=f"run {planned.source}, or plan {source.name}",
        )
    return planned


def prepare(
    first: Annotated[str | None, typer.Option("--from", help="First day; default: all of 2013.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last day, included.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the sample's files into the landing folder, by day."""
    from spark_jobs.sample import prepare_sample

    settings = load_settings()
    days = [None if text is None else instant(text).date() for text in (first, last)]
    if days[0] is not None and days[1] is not None and days[0] > days[1]:
        raise ParameterError(
            expected="--from at or before --to", found=f"{first} and {last}", next_step="swap both ends"
        )
    drops = prepare_sample(settings.landing, first=days[0], last=days[1])
    totals: dict[str, dict[str, int]] = {}
    for drop in drops:
        of_source = totals.setdefault(drop.source, {"drops": 0, "written": 0, "rows": 0})
        of_source["drops"] += 1
        of_source["written"] += drop.written
        of_source["rows"] += drop.rows
    rows = [(name, *counts.values()) for name, counts in totals.items()]
    if not rows:
        note("no day of the sample is in that range; it has the days of 2013")
    emit(as_json, totals, lambda: table(["source", "drops", "written", "rows"], rows))


def document(report: RunReport) -> dict[str, Any]:
    """A run's report for programs."""
    return {
        "source": report.source,
        "run_id": report.run_id,
        "stages": report.stages,
        "seconds": report.seconds,
        "commits": report.commits,
    }


def for_people(report: RunReport) -> Group:
    """A run's report as tables."""
    total = round(sum(report.seconds.values()), 1)
    around = ", ".join(f"{name} {s} s" for name, s in report.seconds.items() if name in ("connect", "imports"))
    summary = Text(f"run {report.run_id}: {total} s ({around}), {report.commits} Delta commits")
    land, publish = report.stages[0], report.stages[-1]
    empty = land.get("empty_drops", [])
    landed = any(land.get(name) for name in (*_OF_LANDING, *_WHERE_ANY))
    restated = any(stage["commits"] for stage in report.stages if stage["stage"] in STAGED)
    hinted = [Text(hint, style="yellow") for hint in hints(land, report.source)]
    if not (landed or restated):
        return Group(
            Text(_sentence_without_news(land, publish, empty), style="yellow"),
            *hinted,
            summary,
        )
    rows: list[tuple[Any, ...]] = []
    for stage in report.stages:
        measures = [(_ALWAYS[name], stage[name]) for name in _ALWAYS if stage.get(name) not in (None, "")]
        measures += [(_WHERE_ANY[name], stage[name]) for name in _WHERE_ANY if stage.get(name)]
        if stage["stage"] == LAST:
            measures.insert(0, ("new rows published", "yes" if stage.get("moved") else "no, there are none"))
            measures += [(f"windows restated in {name}", n) for name, n in stage.get("restated", {}).items()]
        first = (stage["stage"], stage["seconds"], stage["commits"])
        lines = measures or [("", "nothing to do")]
        rows += [(*(first if number == 0 else ("", "", "")), *line) for number, line in enumerate(lines)]
    warnings = [Text(line, style="yellow") for stage in report.stages for line in stage.get("not_passed", [])]
    warnings += hinted
    warnings += [Text(f"nothing came in {_drops(empty)}: taken as empty", style="yellow")] if empty else []
    if land.get("resumed_files"):
        resumed = f"{pluralize(land['resumed_files'], 'file')} with {pluralize(land['resumed_rows'], 'row')}"
        sentence = f"{resumed} had been landed by an earlier run that published nothing; this run took them in"
        warnings.append(Text(sentence, style="yellow"))
    return Group(table(["stage", "seconds", "commits", "measure", "value"], rows), *warnings, summary)


_OF_LANDING = {
    "files": "files",
    "rows": "rows",
    "rejects": "rejected records",
    "duplicates": "duplicates",
}
_ALWAYS = {
    **_OF_LANDING,
    "appended": "rows added to the trace",
    "drained": "rows due by the end of these drops",
    "unsealed": "rows that wait for a later drop",
    "gate": "gate",
    "checks": "checks",
    "marts": "marts",
}
"""Measures of a stage that people see, also where they are 0, with their names for people."""
_WHERE_ANY = {
    "rows_back": "rows taken back",
    "rejects_back": "rejected records taken back",
    "duplicates_back": "duplicates taken back",
}
"""Measures of a stage that people see unless they are 0, with their names for people."""


def _sentence_without_news(land: dict[str, Any], publish: dict[str, Any], empty: list[str]) -> str:
    """One line about a run that landed nothing; it may have built marts all the same."""
    n_unchanged = land.get("known_files", 0)
    unchanged = f"{pluralize(n_unchanged, 'file')} unchanged since {'it' if n_unchanged == 1 else 'they'} landed"
    files = f"no new file: {unchanged}" if n_unchanged else "nothing came"
    drops = f" in {_drops(empty)}: taken as empty" if empty else ""
    parts = ["published up to their end"] if publish.get("moved") else []
    parts += [publish["marts"]] if publish.get("marts") else []
    return f"{files}{drops}; {'; '.join(parts) or 'nothing changed'}"


def _drops(labels: list[str]) -> str:
    """One drop by its name; several drops by their number, the first and the last."""
    return labels[0] if len(labels) == 1 else f"{len(labels)} drops from {labels[0]} to {labels[-1]}"
