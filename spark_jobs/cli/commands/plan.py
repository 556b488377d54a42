"""`plan`: the changes that a run would make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import (
    LAST_DROP,
    FileOption,
    FirstDrop,
    SourceArgument,
    drops_between,
    known_source,
    server_session,
)
from spark_jobs.cli.hints import hints
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.cli.progress import working
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.model import pluralize
from spark_jobs.storage.coordination.kept_plans import keep_plan

if TYPE_CHECKING:
    from spark_jobs.plans.plan import Plan
    from spark_jobs.restatement.preview import TableDifference

SAMPLE = 10
"""Changed rows of a table that fit on a screen."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    source: SourceArgument,
    first: FirstDrop,
    last: Annotated[str | None, typer.Option("--to", help=f"{LAST_DROP} Default: that of --from.")] = None,
    file: FileOption = None,
    rows: Annotated[int, typer.Option(min=0, help="Changed rows to show per table; 0 shows all.")] = SAMPLE,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the plan here, for `tidemark run --plan`.", dir_okay=False)
    ] = None,
    retract: Annotated[
        bool, typer.Option("--retract", help="Show the changes of taking back these drops, or the file.")
    ] = False,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Show the changes of reading their files with open records in quarantine again."),
    ] = False,
    env: Annotated[
        str | None,
        typer.Option("--env", help="Take the source file of this environment (`tidemark env create`)."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the changes that a run of drops would make.

    It also shows the changes of their retraction or replay. It writes only the file of --save, and a copy of
    the plan for the page of the run that applies it.
    """
    if save is not None and not save.parent.is_dir():
        raise ParameterError(
            expected="a file in a folder that is there", found=str(save), next_step=f"make the folder {save.parent}"
        )
    if retract and replay:
        raise ParameterError(expected="--retract or --replay", found="both", next_step="plan one after the other")
    if save is not None and env is not None:
        raise ParameterError(
            expected="--save or --env",
            found="both",
            consequence="nothing was planned: a run takes production's source file, so it could not apply this plan",
            next_step="plan with --env; to apply it, change production's source file and plan again with --save",
        )
    made = make_plan(source, first, last or first, file, rows, retract=retract, replay=replay, env=env)
    if save is not None:
        save.write_text(made.base.to_json(), encoding="utf-8")
        keep_plan(load_settings().home, made.plan_id, {table.table: table.counts for table in made.tables})
    emit(as_json, document(made), lambda: for_people(made))


def make_plan(
    source: str,
    first: str,
    last: str,
    file: str | None = None,
    rows: int = SAMPLE,
    *,
    retract: bool = False,
    replay: bool = False,
    env: str | None = None,
) -> Plan:
    """The plan of a range of drops, through the lake server; `env` names the environment whose source file counts."""
    from spark_jobs.sources import find_environment, find_source
    from spark_jobs.storage.descriptions.times import micros

    settings = load_settings()
    if env is None:
        checked = known_source(settings, source)
    else:
        checked = find_source(find_environment(settings.home, env).folder, source)
    lo, hi = map(micros, drops_between(checked, first, last))
    with working(f"plan {source}"), server_session(settings, "tidemark-plan") as spark:
        from spark_jobs.jobs.request import Request
        from spark_jobs.plans.plan import plan_replay, plan_run

        if replay:
            return plan_replay(settings, checked, (lo, hi), spark, file=file, sample=rows)
        request = Request(only_file=file, retract=retract)
        return plan_run(settings, checked, (lo, hi), spark, request=request, sample=rows)


def document(made: Plan) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "plan_id": made.plan_id,
        "source": made.base.source,
        "drops": [drop.to_json() for drop in made.drops],
        "changed_definition": made.changed_definition,
        "gap": None if made.gap is None else made.gap.as_json(),
        "estimate_s": made.estimate_s,
        "tables": [
            {"table": t.table, "identity": list(t.identity), **t.counts, "sample": t.sample} for t in made.tables
        ],
        "stages": made.stages,
    }


def for_people(made: Plan) -> Group:
    """The plan as tables."""
    columns = [
        "drop",
        "new files",
        "changed",
        "known",
        "taken back",
        "bytes",
        "rows",
        "rejects",
        "duplicates",
        "rows back",
    ]
    drops = [drop.figures for drop in made.drops]
    counts = [(t.table, *t.counts.values()) for t in made.tables]
    parts: list[Any] = [table(columns, drops)]
    if made.changed_definition:
        parts.append(Text(f"changed definition: {', '.join(made.changed_definition)}", style="yellow"))
    moved = made.stages[0].get("moved_files") if made.stages else None
    if moved:
        first = " as ".join(moved[0])
        parts.append(Text(f"{len(moved)} landed files lie elsewhere now, and keep their rows: {first}, for one"))
    if made.stages:
        parts += [Text(hint, style="yellow") for hint in hints(made.stages[0], made.base.source)]
    if made.gap is not None:
        parts.append(Text(f"a run of this is refused: {made.gap}", style="yellow"))
    parts += [Text(), table(["published rows of", "inserted", "changed", "removed"], counts)]
    parts += [part for t in made.tables if t.sample for part in (Text(), sample_table(t))]
    takes = "unknown: nothing ran before" if made.estimate_s is None else f"about {made.estimate_s} s"
    changed = pluralize(sum(t.rows for t in made.tables), "row")
    verdict = "changes no published row" if made.changes_nothing else f"changes {changed}"
    return Group(*parts, Text(f"\nplan {made.plan_id}: {verdict}; time {takes}"))


def sample_table(difference: TableDifference) -> Any:
    """The updates of its sample."""
    columns, rows = difference.sample_rows()
    return table(columns, rows, title=f"{difference.table}, the first of {difference.rows} rows")
