"""`init`: a source file guessed from sample data, or that of an example."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.guesses import EntityOption, NameOption, TimeOption, guess_document, guess_view
from spark_jobs.cli.output import JsonOption, emit
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from spark_jobs.landing.guess import Guess

SHOWN_REJECTS = 20
"""The most rejected records that are shown."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(init)


def init(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The folder of source files, made if it is not there; a file is added."),
    ],
    samples: Annotated[
        list[Path] | None, typer.Option("--from", help="A file as the source's files will be: CSV, NDJSON, Parquet.")
    ] = None,
    more: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", help="More sample files.")] = None,
    example: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="An example in place of sample files: clicks, flights, orders or sensors. Its files land in the"
            " landing folder.",
        ),
    ] = None,
    name: NameOption = None,
    entity: EntityOption = None,
    time: TimeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Guess a source file from sample data, or write an example.

    It asks only for facts that the data do not show, and overwrites nothing.
    """
    if (example is None) == (not samples):
        raise ParameterError(
            expected="--from FILE or --example NAME",
            found="neither" if example is None else "both",
            next_step="name a file that the source's files will be like, or an example",
        )
    if example is not None:
        _write_example(folder, example, [option for option in (*(more or []), name, entity, time) if option], as_json)
        return
    _write_guess(folder, [*(samples or []), *(more or [])], name, entity, time, as_json)


def _write_example(folder: Path, name: str, others: Sequence[object], as_json: bool) -> None:
    from spark_jobs.landing.opened import is_remote
    from spark_jobs.projects.examples import find_example, write_example

    if others:
        raise ParameterError(
            expected="--example alone", found=str(others[0]), next_step="leave it out: an example says all of it"
        )
    settings = load_settings()
    if is_remote(settings.landing):
        raise ParameterError(
            expected="a landing folder of this machine",
            found=str(settings.landing),
            consequence="nothing was written",
            next_step="name one for the example: TIDEMARK_LANDING",
        )
    example = find_example(name)
    path, *landed = write_example(example, folder, settings.landing_folder)
    document = {"path": str(path), "source": example.source, "landed": [str(each) for each in landed]}
    end = (
        f"{path} is the source file; {len(landed)} files are in {settings.landing_folder / example.source}. Next:\n"
        f"  tidemark test {path} && tidemark try --source {path}\n"
        f"  tidemark run {example.source} --from {example.drops[0]} --to {example.drops[-1]}"
    )
    emit(as_json, document, lambda: Text(end))


def _write_guess(
    folder: Path, samples: Sequence[Path], name: str | None, entity: str | None, time: str | None, as_json: bool
) -> None:
    from spark_jobs.landing.guess import guess_source

    if folder.exists() and not folder.is_dir():
        raise ParameterError(
            expected="a folder, or the name of a new one",
            found=f"{folder}, which is a file",
            consequence="nothing was written",
            next_step="name another",
        )
    guess = guess_source(samples, name=name, entity=entity, time=time)
    path = folder / f"{guess.source.name}.yml"
    folder.mkdir(parents=True, exist_ok=True)
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
    emit(as_json, {"path": str(path), **guess_document(guess)}, lambda: _for_people(path, guess))


def _for_people(path: Path, guess: Guess) -> Group:
    source = guess.source
    end = f"Look through {path}; files land as {source.path}, and `tidemark plan {source.name}` says more."
    return Group(guess_view(guess, str(path), SHOWN_REJECTS), Text(end))
