"""`erase`: remove the rows of an entity, or of one value, from the lake, and keep none of them that land again."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import SourceArgument, known_source, server_session
from spark_jobs.cli.commands.run import run_source
from spark_jobs.cli.output import JsonOption, emit, note, table
from spark_jobs.cli.progress import working
from spark_jobs.config import load_settings
from spark_jobs.model import pluralize

if TYPE_CHECKING:
    from spark_jobs.landing.choices import Choice
    from spark_jobs.sources import Source


STEPS = {
    "histories": "windows and states are computed without the rows, for now and for the past",
    "account": "the rows are counted as erased",
    "rows": "the rows leave chunks, trace, quarantine and duplicates",
    "texts": "the value leaves the texts of quality tables",
    "pins": "pins are copied again, and environments lose their tables of the source",
    "marts": "marts are built again",
    "versions": "earlier versions of the tables are removed",
    "search": "files, logs and reports are searched for the value",
}
"""The steps of an erasure as people see them, by name."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(erase)


def erase(
    source: SourceArgument,
    entity: Annotated[str | None, typer.Option("--entity", help="The entity, letter by letter as it landed.")] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", help="One value of another declared column, such as \"customer = 'c0354'\"."),
    ] = None,
    because: Annotated[str, typer.Option("--because", help="Why; it is kept, so it must not name the value.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the rows that would be removed; change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Erase an entity, or all rows with one value, and their past.

    The rows leave every table and their past. Results in which they counted become those without them. A row of them
    that lands again is counted and not kept. It can't be taken back. Exit code 1 if something of them is left below
    Tidemark's home.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    choice = _choice(checked, entity, where)
    from spark_jobs.erasure.erase import erase as erase_rows
    from spark_jobs.erasure.erase import find
    from spark_jobs.jobs.pipeline import new_run_id
    from spark_jobs.server.airflow_runs import AirflowRuns
    from spark_jobs.storage.coordination.turns import Turn, hold_turn

    with server_session(settings, "tidemark-erase") as spark:
        if dry_run:
            with working(f"erase from {source}: rows and files are counted"):
                report = find(settings, checked, spark, choice)
        else:
            turn = Turn(new_run_id("erase"), 0, "an erasure", first=True)
            driver = AirflowRuns(settings, checked.name, checked.drops)
            waiting = hold_turn(
                settings.home / "leases",
                checked.name,
                turn,
                driver=driver,
                wait_s=None,
                on_wait=lambda whom: note(f"waits for {whom}"),
            )
            with working(f"erase from {source}") as report_step, waiting:
                report = erase_rows(settings, checked, spark, choice, because, lambda step: report_step(STEPS[step]))
    if report.again:
        lo, hi = (checked.drops.interval(number) for number in (report.again[0][0], report.again[-1][0]))
        from spark_jobs.jobs.request import Request
        from spark_jobs.storage.descriptions.times import instant as at

        request = Request(replay=frozenset(file for _, file in report.again))
        with working(f"erase from {source}, other rows of its files") as report_step:
            run_source(settings, source, at(lo[0]), at(hi[1]), prefix="erase", request=request, on_stage=report_step)
    rows = [(name, counts["went"], counts["came"]) for name, counts in sorted(report.tables.items())]
    records = pluralize(report.records, "record of quarantine", "records of quarantine")
    words = f"{pluralize(report.rows, 'row')} and {records} {'would go' if dry_run else 'are gone'}"
    remarks = [Text(f"your file has it still: {path}") for path in report.files]
    remarks += [Text(f"build again: `tidemark env build {name} {source}`") for name in report.environments]
    remarks += [Text(f"left: {place}") for place in report.left]
    if report.since is not None:
        remarks.append(
            Text(f"the past is told from {report.since.isoformat()} on: runs before followed other definitions")
        )
    emit(as_json, asdict(report), lambda: Group(table(["table", "went", "came"], rows), Text(words), *remarks))
    if report.left:
        raise typer.Exit(1)


def _choice(source: Source, entity: str | None, where: str | None) -> Choice:
    """The rows to erase, by one of the two options."""
    from spark_jobs.errors import ParameterError
    from spark_jobs.landing.choices import of_condition, of_entity

    if where is not None and entity is None:
        return of_condition(source, where)
    if entity is not None and where is None:
        return of_entity(source, entity)
    raise ParameterError(
        expected="either --entity or --where",
        found="none" if entity is None else "both",
        consequence="nothing was erased",
        next_step="say --entity for all rows of an entity, --where \"column = 'value'\" for all rows with one value",
    )
