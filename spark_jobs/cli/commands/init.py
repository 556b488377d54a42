"""`init`: a source file guessed from sample data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from spark_jobs.landing.guess import Guess


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(init)


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where source files are: a file is added to it.")],
    samples: Annotated[
        list[Path], typer.Option("--from", help="A file as the source's files will be: CSV, NDJSON, Parquet.")
    ],
    more: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", help="More sample files.")] = None,
    name: Annotated[str | None, typer.Option(help="The source's name; default: that of the samples' folder.")] = None,
    entity: Annotated[str | None, typer.Option(help="The column that says which entity a row changes.")] = None,
    time: Annotated[str | None, typer.Option(help="The column of the event time.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Guess a source file from sample data; asks nothing that the data tell, and overwrites nothing."""
    from spark_jobs.landing.guess import guess_source

    if not folder.is_dir():
        raise ParameterError(expected="a folder that is there", found=str(folder), next_step=f"make it: mkdir {folder}")
    guess = guess_source([*samples, *(more or [])], name=name, entity=entity, time=time)
    path = folder / f"{guess.source.name}.yml"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(guess.text)
    except FileExistsError:
        raise ParameterError(
            expected="a name that no source file has",
            found=str(path),
            consequence="nothing was written",
            next_step="give another with --name, or remove that file",
        ) from None
    emit(as_json, _document(path, guess), lambda: _for_people(path, guess))


def _document(path: Path, guess: Guess) -> dict[str, Any]:
    source = guess.source
    return {
        "path": str(path),
        "source": source.name,
        "entity": source.entity,
        "event_time": source.primary_timeline,
        "columns": {name: column.type for name, column in source.columns.items()},
        "rows": guess.rows,
        "rejected": guess.rejected,
        "rejects": guess.rejects,
        "left_out": list(guess.left_out),
    }


def _for_people(path: Path, guess: Guess) -> Group:
    source = guess.source
    columns = [(name, column.type, source.header_name(name)) for name, column in source.columns.items()]
    count = sum(guess.rejected.values())
    rejected = f", {count} rejected" if count else ""
    lines = [f"\n  {r['file']}, line {r['line']}: {r['reason']}" for r in guess.rejects]
    lines += [f"\n  and {count - len(lines)} more"] if count > len(lines) else []
    lines += [f"\n  no type fits, so left out: {', '.join(guess.left_out)}"] if guess.left_out else []
    return Group(
        table(["column", "type", "in the files"], columns, title=str(path)),
        Text(
            f"\nentity {source.entity}, event time {source.primary_timeline}; {guess.rows} rows read{rejected}"
            + "".join(lines)
        ),
        Text(f"Look through {path}; files land as {source.path}, and `tidemark plan {source.name}` says more."),
    )
