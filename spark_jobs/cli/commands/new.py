"""`new`: a project for users of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from spark_jobs.cli.output import JsonOption, emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(new)


def new(
    project: Annotated[Path, typer.Argument(metavar="PROJECT", help="A folder that is empty or not there yet.")],
    example: Annotated[
        str, typer.Option(metavar="NAME", help="The example to begin with: clicks, flights, orders or sensors.")
    ] = "sensors",
    as_json: JsonOption = False,
) -> None:
    """Write a project: a source with tests, files, mart and notebook."""
    from spark_jobs.projects.examples import find_example
    from spark_jobs.projects.project import write_project

    chosen = find_example(example)
    written = write_project(project, chosen)
    document = {"project": str(project), "source": chosen.source, "files": [str(path) for path in written]}
    lines = [
        f"{project} is a project with the source {chosen.source}: {len(written)} files; its README.md says more. Next:",
        f"  cd {project}",
        "  tidemark check && tidemark test",
        f"  tidemark try --source {chosen.source}",
    ]
    emit(as_json, document, lambda: Text("\n".join(lines)))
