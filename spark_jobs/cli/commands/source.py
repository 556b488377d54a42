"""`source`: rename, drop and reset whole sources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import server_session
from spark_jobs.cli.output import JsonOption, emit, note, table
from spark_jobs.cli.progress import working
from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from spark_jobs.lifecycle.removal import Removed

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of a source; its file may be gone.")]
ArchiveOption = Annotated[
    str | None,
    typer.Option("--archive", metavar="DIR", help="Back the lake up there first, then remove; a folder or s3a://…"),
]
PurgeOption = Annotated[bool, typer.Option("--purge", help="Remove it, and keep nothing.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Rename, drop or reset a whole source.")
    group.command("rename")(rename)
    group.command("drop")(drop)
    group.command("reset")(reset)
    app.add_typer(group, name="source")


def rename(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Name of a source.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The name that it gets.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be renamed; change nothing.")] = (False),
    as_json: JsonOption = False,
) -> None:
    """Rename a source with its file, tables, records, past and pins.

    Nothing is landed or computed again. The same command continues an interrupted rename.
    """
    from spark_jobs.lifecycle.renaming import find_rename, rename_source

    settings = load_settings()
    with server_session(settings, "tidemark-source") as spark:
        if dry_run:
            report = find_rename(settings, spark, old, new)
        else:
            with working(f"source rename {old}"), _turns(settings, old, new):
                report = rename_source(settings, spark, old, new, note)
    rows = sorted(report.tables.items())
    remarks = [
        Text(f"{'would be' if dry_run else 'is'} {report.file}; files land where its `landing.path` says, as before")
    ]
    remarks += [
        Text(f"let the model of marts.{mart} read gold.{new}, and carry the tag {new}") for mart in report.marts
    ]
    remarks += [Text(f"pin {pin}: its tables __{old}_… become __{new}_…") for pin in report.pins]
    remarks += [Text(f"build again: `tidemark env build {name} {new}`") for name in report.environments]
    remarks.append(Text(f"Airflow keeps the runs of before under {old}: `tidemark airflow dags delete {old}`"))
    emit(as_json, asdict(report), lambda: Group(table(["table", "rows"], rows), *remarks))


def drop(
    name: NameArgument, archive: ArchiveOption = None, purge: PurgeOption = False, as_json: JsonOption = False
) -> None:
    """Drop a source: remove its landed and published rows, its file, and so its DAG.

    Without an option it shows what it would remove, and changes nothing. Pins stay; erased rows stay erased.
    """
    _remove(name, "drop", archive, as_json, purge=purge)


def reset(
    name: NameArgument, archive: ArchiveOption = None, purge: PurgeOption = False, as_json: JsonOption = False
) -> None:
    """Reset a source: remove its landed and published rows, but not its file.

    The next run begins at the source's `start`. Without an option it shows what it would remove, and changes nothing.
    Erased rows stay erased.
    """
    _remove(name, "reset", archive, as_json, purge=purge)


def _remove(name: str, kind: str, archive: str | None, as_json: bool, *, purge: bool) -> None:
    if archive is not None and purge:
        raise ParameterError(
            expected="--archive, or --purge", found="both", consequence="nothing was changed", next_step="choose one"
        )
    from spark_jobs.lifecycle.removal import find_removal, remove_source

    settings = load_settings()
    does = purge or archive is not None
    with server_session(settings, "tidemark-source") as spark:
        if does:
            with working(f"source {kind} {name}"), _turns(settings, name):
                report = remove_source(settings, spark, name, kind, archive=archive, on_step=note)
        else:
            report = find_removal(settings, spark, name, kind)
    emit(as_json, {**asdict(report), "done": does}, lambda: Group(*_for_people(report, does=does)))


def _for_people(report: Removed, *, does: bool) -> Iterator[Any]:
    yield table(["table", "rows gone" if does else "rows that would go"], sorted(report.tables.items()))
    if report.file is not None:
        yield Text(f"{'gone' if does else 'would go'}: {report.file}, and its DAG with it")
    yield from (
        Text(f"marts.{mart} {'is' if does else 'would be'} gone; its model stays in the project")
        for mart in report.marts
    )
    yield from (Text(f"pin {pin} stays: `tidemark unpin {pin}` removes it") for pin in report.pins)
    if does and report.archive is not None:
        yield Text(f"`tidemark restore {report.archive}` brings the lake of before into an empty home")
    if does and report.kind == "reset":
        yield Text(f"run its drops from its start: `tidemark run {report.source} --from … --to … --each`")
    if not does:
        yield Text(
            f"nothing was changed: `tidemark source {report.kind} {report.source} --purge`, or --archive DIR, does it"
        )


@contextmanager
def _turns(settings: Settings, *sources: str) -> Iterator[None]:
    """Take the turns of these sources: no run of them begins within the block."""
    from spark_jobs.jobs.pipeline import new_run_id
    from spark_jobs.server.airflow_runs import AirflowRuns
    from spark_jobs.storage.coordination.turns import Turn, hold_turn

    with ExitStack() as stack:
        for source in sources:
            turn = Turn(new_run_id("source"), 0, "a change of the source", first=True)
            # its file, which says its drops, may be gone
            driver = AirflowRuns(settings, source, None)
            stack.enter_context(
                hold_turn(
                    settings.home / "leases",
                    source,
                    turn,
                    driver=driver,
                    wait_s=None,
                    on_wait=lambda whom: note(f"waits for {whom}"),
                )
            )
        yield
