"""`backup`, `restore`, `verify`: a consistent copy of the lake and what its sources need, and the way back."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.output import JsonOption, emit, note, table
from spark_jobs.config import load_settings

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
    """Add a set to a backup: the lake as every source has published it, the source files, and plugins, expectations,
    dbt models and environments of one's own. Runs may go on.

    Only files that the backup does not hold yet are copied. Secrets (logins, tokens, connections, keys) and Airflow's
    own database are not in it.
    """
    from spark_jobs.backup import back_up

    done = back_up(load_settings(), place, landing=landing)
    backup_set = done.backup_set
    document = {
        "set": backup_set.name,
        "place": place,
        "tables": len(backup_set.tables),
        "files": len(backup_set.files),
        "bytes": sum(file.size for file in backup_set.files),
        "copied_files": done.copied_files,
        "copied_bytes": done.copied_bytes,
        "published": backup_set.published,
    }
    emit(as_json, document, lambda: _listed(document, f"backed up: set {backup_set.name}"))


def restore(place: PlaceArgument, name: SetOption = None, as_json: JsonOption = False) -> None:
    """Bring a set back into an empty home: every file is checked, every table opened. The next run goes on from it.

    Settings stay this environment's: those that were otherwise are named, and those that have to be set.
    """
    from spark_jobs.backup import restore as bring_back

    settings = load_settings()
    done = bring_back(settings, place, name)
    document = {
        "set": done.back.name,
        "lake": settings.lake,
        "tables": len(done.back.tables),
        "files": done.files,
        "bytes": done.bytes,
        "published": done.back.published,
        "to_set": done.to_set,
        "other_settings": {name: {"backup": was, "here": now} for name, (was, now) in done.other_settings.items()},
    }
    emit(as_json, document, lambda: _listed(document, f"restored: set {done.back.name}"))
    if not as_json:
        for knob, (was, now) in done.other_settings.items():
            note(f"{knob} was {_value(was)} where the backup was made, and is {_value(now)} here")
        for knob, folder in done.to_set.items():
            note(f"set {knob}={shlex.quote(folder)}: what the sources need of it was brought there")
        note("`tidemark up` gives the catalog its tables, views and marts")


def verify(place: PlaceArgument, name: SetOption = None, as_json: JsonOption = False) -> None:
    """Read every file of a set against its checksum, and compare the lake's files; exit code 1 if one is damaged."""
    from spark_jobs.backup import verify as compare

    done = compare(load_settings(), place, name)
    document = {
        "set": done.compared.name,
        "files": done.files,
        "bytes": done.bytes,
        "damaged": done.damaged,
        "lake_differs": done.elsewhere,
    }
    wrong = [*done.damaged.items(), *done.elsewhere.items()]
    title = (
        f"set {done.compared.name}: {done.files} files of {done.bytes} bytes read, {len(wrong)} damaged or different"
    )
    emit(as_json, document, lambda: table(["file", "finding"], wrong[:SHOWN], title=title) if wrong else Text(title))
    if wrong:
        raise typer.Exit(1)


def _value(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def _listed(document: dict[str, Any], title: str) -> Group:
    """The numbers of a set, and up to where it has each source."""
    numbers = [(name.replace("_", " "), value) for name, value in document.items() if not isinstance(value, dict)]
    sources = [(source, shown["published"], shown["run_id"]) for source, shown in document["published"].items()]
    columns = ["source", "published up to (UTC)", "by the run"]
    return Group(table(["what", "value"], numbers, title=title), Text(), table(columns, sources))
