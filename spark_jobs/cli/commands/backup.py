"""`backup`, `restore`, `verify`: a consistent copy of the lake and its sources' files, and its restore."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.output import JsonOption, emit, note, table
from spark_jobs.cli.progress import working
from spark_jobs.config import load_settings
from spark_jobs.model import pluralize

PlaceArgument = Annotated[str, typer.Argument(help="A folder, or a URI such as s3a://bucket/folder (AWS_… say who).")]
SetOption = Annotated[str | None, typer.Option("--set", help="Name of the set; the newest by default.")]
SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(backup)
    app.command()(restore)
    app.command()(verify)


def backup(
    place: PlaceArgument,
    landing: Annotated[bool, typer.Option("--landing", help="Also the landed files that count.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Add the lake and the files of its sources to a backup.

    A set has the lake as every source has published it, the source files, and plugins, expectations, dbt models and
    environments of one's own. Runs may continue. Only files that the backup lacks are copied. Secrets (logins, tokens,
    connections, keys) and Airflow's own database are not in it.
    """
    from spark_jobs.backup import back_up

    with working("backup") as report_step:
        report = back_up(load_settings(), place, landing=landing, report_step=report_step)
    backup_set = report.backup_set
    document = {
        "set": backup_set.name,
        "place": place,
        "tables": len(backup_set.tables),
        "files": len(backup_set.files),
        "bytes": sum(file.size for file in backup_set.files),
        "copied_files": report.copied_files,
        "copied_bytes": report.copied_bytes,
        "published": backup_set.published,
    }
    emit(as_json, document, lambda: _view(document, f"backed up: set {backup_set.name}"))


def restore(place: PlaceArgument, name: SetOption = None, as_json: JsonOption = False) -> None:
    """Bring a set of a backup back into an empty home.

    Every file is checked, and every table opened. The next run continues from it. Settings stay this environment's. The
    output names settings that differ from the backup's, and settings that have to be set.
    """
    from spark_jobs.backup import restore as bring_back

    settings = load_settings()
    with working("restore") as report_step:
        report = bring_back(settings, place, name, report_step)
    document = {
        "set": report.back.name,
        "lake": settings.lake,
        "tables": len(report.back.tables),
        "files": report.files,
        "bytes": report.bytes,
        "published": report.back.published,
        "to_set": report.to_set,
        "other_settings": {name: {"backup": was, "here": now} for name, (was, now) in report.other_settings.items()},
    }
    emit(as_json, document, lambda: _view(document, f"restored: set {report.back.name}"))
    if not as_json:
        for knob, (was, now) in report.other_settings.items():
            note(f"{knob} was {_value(was)} where the backup was made, and is {_value(now)} here")
        for knob, folder in report.to_set.items():
            note(f"set {knob}={shlex.quote(folder)}: the files that sources need were restored there")
        note("`tidemark up` gives the catalog its tables, views and marts")


def verify(place: PlaceArgument, name: SetOption = None, as_json: JsonOption = False) -> None:
    """Read every file of a backup's set against its checksum.

    The sizes of the lake's own files are compared, too. Exit code 1 if a file is damaged.
    """
    from spark_jobs.backup import verify as compare

    with working("verify") as report_step:
        report = compare(load_settings(), place, name, report_step)
    document = {
        "set": report.compared.name,
        "files": report.files,
        "bytes": report.bytes,
        "damaged": report.damaged,
        "lake_differs": report.elsewhere,
    }
    wrong = [*report.damaged.items(), *report.elsewhere.items()]
    read = f"{pluralize(report.files, 'file')} of {pluralize(report.bytes, 'byte')} read"
    title = f"set {report.compared.name}: {read}, {len(wrong)} damaged or different"
    emit(as_json, document, lambda: table(["file", "finding"], wrong[:SHOWN], title=title) if wrong else Text(title))
    if wrong:
        raise typer.Exit(1)


def _value(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def _view(document: dict[str, Any], title: str) -> Group:
    """The numbers of a set, and up to where it has each source."""
    numbers = [(name.replace("_", " "), value) for name, value in document.items() if not isinstance(value, dict)]
    sources = [
        (source, publication["published"], publication["run_id"])
        for source, publication in document["published"].items()
    ]
    columns = ["source", "published up to (UTC)", "by the run"]
    return Group(table(["what", "value"], numbers, title=title), Text(), table(columns, sources))
