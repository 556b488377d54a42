"""`env`: environments to plan changed source files in; without a subcommand, what a shell needs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from spark_jobs.cli.commands.airflow import print_environment
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import load_settings

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of an environment, such as dev.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer()
    group.callback(invoke_without_command=True)(env)
    group.command("create")(create)
    group.command("list")(list_environments)
    group.command("drop")(drop)
    app.add_typer(group, name="env")


def env(context: typer.Context) -> None:
    """What a shell needs so that `airflow`, `tidemark` and `dbt` find this installation: `eval "$(tidemark env)"`.

    It holds Airflow's keys: keep it out of logs. The subcommands are about environments: copies of source files, to be
    changed and planned with `tidemark plan SOURCE --env NAME`.
    """
    if context.invoked_subcommand is None:
        print_environment()


def create(
    name: NameArgument,
    sources: Annotated[list[str] | None, typer.Argument(help="Sources whose files it gets; without any, all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy source files into a folder of the environment, to be changed there; production's stay as they are."""
    from spark_jobs.sources import create_environment

    settings = load_settings()
    environment = create_environment(settings.home, name, settings.sources, sources or ())
    states = environment.differences(settings.sources)
    document = {"environment": name, "folder": str(environment.folder), "sources": states}
    said = f"{name}: change the source files in {environment.folder}, then `tidemark plan SOURCE --env {name}`"
    emit(as_json, document, lambda: Text(said))


def list_environments(as_json: JsonOption = False) -> None:
    """The environments, and which of their source files differ from production's."""
    from spark_jobs.sources import environments

    settings = load_settings()
    states = [(e, e.differences(settings.sources)) for e in environments(settings.home)]
    rows = [{"environment": e.name, "folder": str(e.folder), "sources": sources} for e, sources in states]
    lines = [(e.name, source, state, str(e.folder)) for e, sources in states for source, state in sources.items()]
    emit(as_json, {"environments": rows}, lambda: table(["environment", "source", "file", "folder"], lines))


def drop(name: NameArgument, as_json: JsonOption = False) -> None:
    """Remove an environment with its source files."""
    from spark_jobs.sources import drop_environment

    drop_environment(load_settings().home, name)
    emit(as_json, {"dropped": name}, lambda: Text(f"dropped {name}"))
