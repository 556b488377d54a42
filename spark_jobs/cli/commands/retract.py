"""`retract`: take back the rows that a drop or a file landed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_jobs.cli.arguments import SourceArgument, drops_between, known_source
from spark_jobs.cli.commands import plan as plans
from spark_jobs.cli.commands.run import document, for_people, run_source
from spark_jobs.cli.drops import lake_of
from spark_jobs.cli.output import JsonOption, emit
from spark_jobs.cli.progress import working
from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from spark_jobs.sources import Source


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(retract)


def retract(
    source: SourceArgument,
    drop: Annotated[
        str | None, typer.Option("--drop", help="The drop: a date, or a date and time in UTC; default: that of --file.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", help="Only this file, relative to the landing directory.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes, as `tidemark plan … --retract` does.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Take back a drop or a file, and publish the difference.

    The files stay in their folders, and no run lands them: a retracted file lands again once it has other bytes, or by
    `tidemark run … --file`.
    """
    from spark_jobs.jobs.request import Request

    settings = load_settings()
    checked = known_source(settings, source)
    if drop is None:
        drop = _drop_of(settings, checked, file)
    if dry_run:
        made = plans.make_plan(source, drop, drop, file, retract=True)
        emit(as_json, plans.document(made), lambda: plans.for_people(made))
        return
    lo, hi = drops_between(checked, drop, drop)
    with working(f"retract {source}") as report_step:
        report = run_source(
            settings,
            source,
            lo,
            hi,
            prefix="retract",
            request=Request(retract=True, only_file=file),
            on_stage=report_step,
        )
    emit(as_json, document(report), lambda: for_people(report))


def _drop_of(settings: Settings, source: Source, file: str | None) -> str:
    """The drop that landed the file, as people name it.

    Raises:
        ParameterError: no file is named, or none of its name has landed.
    """
    from spark_jobs.landing import ledger
    from spark_jobs.sources import unknown_name

    if file is None:
        raise ParameterError(
            expected="--drop or --file", found="neither", next_step="name the drop, or the file, to take back"
        )
    with lake_of(settings) as lake:
        versions = ledger.versions(lake, source)
    if file not in versions:
        raise unknown_name(
            file,
            versions,
            expected=f"a landed file of {source.name}, relative to the landing directory",
            consequence="nothing was taken back",
            next_step="`SELECT path FROM bronze.files` names landed files",
        )
    return source.drops.label(versions[file].seq_no)
