"""`airflow`: Airflow's own command line on this installation, and its environment for a shell."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

import typer

from spark_jobs.config import Settings, load_settings


def register(app: typer.Typer) -> None:
    """Add the commands."""
    verbatim = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command(context_settings=verbatim, add_help_option=False)(airflow)


def airflow(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS…", help="As Airflow takes them.")] = None,
) -> None:
    """Run a command of Airflow: `tidemark airflow dags list`.

    `scheduler`, `api-server`, `dag-processor` and `triggerer` run these processes of Airflow as services of their own.
    """
    from spark_jobs.server.airflow_parts import airflow_command

    settings = load_settings()
    environment = airflow_environment(settings)
    sys.stdout.flush()
    os.execve(sys.executable, airflow_command(tuple(arguments or ())), environment)


def print_environment() -> None:
    """Print the `export` lines with which `airflow` finds this installation, without those that the shell has."""
    for name, value in airflow_environment(load_settings()).items():
        if os.environ.get(name) != value:
            typer.echo(f"export {name}={shlex.quote(value)}")


def airflow_environment(settings: Settings) -> dict[str, str]:
    """The environment of Airflow's commands.

    Raises:
        ServerUnreachable: Airflow's database does not run.
    """
    from spark_jobs.server import airflow_parts, postgres
    from spark_jobs.server.errors import ServerUnreachable
    from spark_jobs.server.state import running_supervisor

    if settings.airflow_database_url is None:
        running = running_supervisor(settings)
        part = running.part(postgres.NAME) if running else None
        if part is None or part.pid is None or not postgres.is_ready(settings, part.pid):
            raise ServerUnreachable(
                expected="Airflow's database, which runs with Airflow",
                found=f"it does not run under {settings.home}",
                consequence="Airflow was not asked",
                next_step="start it with `tidemark up`",
                address=str(postgres.socket_folder(settings)),
            )
    return airflow_parts.airflow_environment(settings)
