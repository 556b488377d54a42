"""`up`, `down`, `status`: the lake server and Airflow on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli import drops as drops_of_source
from spark_jobs.cli.arguments import known_source
from spark_jobs.cli.output import JsonOption, emit, note, table
from spark_jobs.cli.progress import working
from spark_jobs.config import Settings, load_settings
from spark_jobs.model import pluralize

if TYPE_CHECKING:
    from spark_jobs.server.health import Service
    from spark_jobs.server.status import InstallationStatus

WAIT_S = 60.0
"""A lake server that was killed is back within 30 s; Airflow within 40."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(up)
    app.command()(down)
    app.command()(status)


def up(
    airflow: Annotated[bool, typer.Option(help="Run Airflow too; without it, one that runs is ended.")] = True,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, as containers and service managers want.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start the lake server (SQL and jobs) and Airflow.

    It waits until they serve, and is safe to repeat.
    """
    from spark_jobs.server import control

    settings = load_settings()
    if foreground:
        control.serve(settings, airflow=airflow)
    try:
        with working("up") as report_step:
            report_step(f"the lake server{' and Airflow' if airflow else ''}, about {60 if airflow else 30} s")
            result = control.up(settings, airflow=airflow, progress=note)
    except KeyboardInterrupt:
        note("interrupted; started processes still run: see `tidemark status`, end them with `tidemark down`")
        raise
    _show(settings, result, as_json)


def down(as_json: JsonOption = False) -> None:
    """End the lake server and Airflow.

    It also ends processes that a crash of them left behind.
    """
    from spark_jobs.server import control

    with working("down") as report_step:
        ended = control.down(load_settings(), progress=report_step)
    text = "ended" if ended.ran else "nothing was running"
    if ended.lingers:
        text += "; Java still writes its archive of classes, which halves the next start: it takes a minute, by itself"
    if ended.leftovers:
        text += f"; ended {pluralize(len(ended.leftovers), 'process', 'processes')} that a crash had left behind"
    emit(as_json, asdict(ended), lambda: Text(text))


def status(
    wait: Annotated[float, typer.Option(help="Seconds to wait for parts that are starting.")] = WAIT_S,
    drops: Annotated[
        str | None, typer.Option("--drops", metavar="SOURCE", help="Instead: which drops of a source have landed.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which parts run; with --drops, which drops have landed.

    Exit code 1 unless all parts serve with the present code. With --drops it lists the drops of a source as landed,
    missing, failed (in Airflow) or partial (files came, changed or went since, or landed and were not published). That
    needs no server.
    """
    from spark_jobs.server import status as server_status

    settings = load_settings()
    if drops is not None:
        source = known_source(settings, drops)
        document = drops_of_source.document(settings, source)
        emit(as_json, document, lambda: drops_of_source.for_people(document, source.name))
        return
    result = server_status.status(settings, wait_s=wait)
    _show(settings, result, as_json)
    if not result.ok:
        raise typer.Exit(1)


def _show(settings: Settings, result: InstallationStatus, as_json: bool) -> None:
    document = {
        "ok": result.ok,
        "running": result.supervisor is not None,
        "stale": result.stale,
        "home": result.home,
        "logs": str(settings.logs_dir),
        "orphans": list(result.orphans),
        "loss": result.loss,
        "services": _by_name(result.services),
        "surroundings": _by_name(result.surroundings),
        "parts": {part.name: asdict(part) for part in result.supervisor.parts} if result.supervisor else {},
    }
    emit(as_json, document, lambda: Group(*_for_people(settings, result)))


def _by_name(services: Iterable[Service]) -> dict[str, Any]:
    return {service.name: {"url": service.url, **asdict(service.health)} for service in services}


def _for_people(settings: Settings, result: InstallationStatus) -> list[Any]:
    lines: list[Any] = []
    if result.supervisor is None:
        lines.append(Text(result.loss or "nothing runs; `tidemark up` starts it"))
    else:
        services = [
            ("✓" if service.health.ok else "✗", service.name, service.url, service.health.detail)
            for service in (*result.services, *result.surroundings)
        ]
        parts = [
            (part.name, part.condition, part.pid, _since(part.started), part.restarts)
            for part in result.supervisor.parts
        ]
        lines += [table(["", "service", "address", "answer"], services), Text()]
        lines += [table(["part", "condition", "pid", "since (UTC)", "restarts"], parts), Text()]
        for part in result.supervisor.parts:
            if part.reason:
                lines.append(Text(f"{part.name} was restarted, because {part.reason}", style="yellow"))
        lines.append(Text(f"SQL's logins (JDBC): reader and writer, passwords in {settings.logins_file}"))
        if result.supervisor.part("airflow-api-server"):
            lines.append(Text(f"Airflow's login: admin, password in {settings.airflow_home / 'passwords.json'}"))
    if result.stale:
        lines.append(Text("the lake server runs older code than the files: `tidemark up` restarts it", style="yellow"))
    if result.orphans:
        pids = ", ".join(map(str, result.orphans))
        lines.append(Text(f"processes left by a crash: {pids}; `tidemark down` ends them", style="yellow"))
    lines.append(Text(f"logs: {settings.logs_dir}"))
    return lines


def _since(started: float) -> str:
    return datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M:%S") if started else ""
