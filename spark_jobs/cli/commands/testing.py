"""`test`: the tests of source files; `check`: whether source files are right; `schema`: their JSON Schema. None of them
needs an installation or Java."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_jobs.cli.app import EXIT_FAILED
from spark_jobs.cli.output import JsonOption, RowsView, emit
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from spark_jobs.jobs.source_tests import CaseResult, Difference
    from spark_jobs.sources import Source

NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[SOURCE]...", help="Sources, or paths of source files; default: all.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(test)
    app.command()(check)
    app.command()(schema)


def test(
    names: NamesArgument = None,
    case: Annotated[list[str] | None, typer.Option("--case", help="Run this test alone; may be repeated.")] = None,
    orders: Annotated[
        int,
        typer.Option(
            min=0,
            help="Run each test in so many other orders, too: rows of a drop shuffled and split into files, drops run"
            " together; the tables must be the same.",
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(help="The number from which orders are drawn.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run the tests in source files: rows in, all stages over them in a scratch folder, tables compared."""
    from spark_jobs.jobs.source_tests import run_tests
    from spark_jobs.sources.folder import source_files

    found = [_source(name) for name in names or source_files(load_settings().sources)]
    found = [(source, path) for source, path in found if names or source.tests]
    if not found:
        raise ParameterError(
            expected="a source file with `tests`", found="none", next_step="add `tests:` to a source file"
        )
    results = [
        (source.name, result)
        for source, path in found
        for result in run_tests(source, path.read_text(encoding="utf-8-sig"), case or (), orders, seed)
    ]
    document = {"tests": [_document(name, result) for name, result in results], "seed": seed}
    emit(as_json, document, lambda: Group(*(part for name, result in results for part in _shown(name, result, seed))))
    if not all(result.passed for _, result in results):
        raise typer.Exit(EXIT_FAILED)


def check(names: NamesArgument = None, as_json: JsonOption = False) -> None:
    """Say whether source files are right, with all problems of each. It reads the files alone."""
    from spark_jobs.sources import read_sources
    from spark_jobs.sources.problems import SourceFileError

    right: list[str] = []
    wrong: list[SourceFileError] = []
    if names:
        for name in names:
            try:
                right.append(_source(name)[0].name)
            except SourceFileError as error:
                wrong.append(error)
    else:
        folder = read_sources(load_settings().sources)
        wrong = folder.problems()
        right = sorted(name for name, file in folder.files.items() if file not in {error.file for error in wrong})
    problems = [{"file": error.file, **problem} for error in wrong for problem in error.problems]
    lines = [f"{p['file']}: {p['path'] or 'the file'}: expected {p['expected']}, found {p['found']}" for p in problems]
    lines += [f"right: {', '.join(right)}"] if right else []
    emit(as_json, {"right": right, "problems": problems}, lambda: Text("\n".join(lines) or "no source file is there"))
    if wrong:
        raise typer.Exit(EXIT_FAILED)


def schema() -> None:
    """Print the JSON Schema of source files, for editors: `# yaml-language-server: $schema=FILE` in a source file."""
    from spark_jobs.sources.schema import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")


def _source(name: str) -> tuple[Source, Path]:
    """The source of this name, or of the source file at this path, with its file.

    Raises:
        SourceFileError: the source file is wrong.
        ParameterError: there is no such source or file.
    """
    from spark_jobs.sources import load_source
    from spark_jobs.sources.folder import SOURCE_SUFFIXES, find_source_file

    path = Path(name)
    if path.suffix not in SOURCE_SUFFIXES:
        path = find_source_file(load_settings().sources, name)
    elif not path.is_file():
        raise ParameterError(expected="a source file", found=name, next_step="name a file that is there")
    return load_source(path), path


def _document(source: str, result: CaseResult) -> dict[str, Any]:
    return {
        "source": source,
        "test": result.name,
        "order": result.order,
        "passed": result.passed,
        "seconds": round(result.seconds, 3),
        "refused": result.refused,
        "differences": [
            {"drop": d.drop, "table": d.table, "expected": d.expected, "found": d.found} for d in result.differences
        ],
    }


def _shown(source: str, result: CaseResult, seed: int) -> list[RenderableType]:
    order = f", order {result.order} of seed {seed}" if result.order else ""
    title = f"{source}: {result.name.replace('_', ' ')}{order}"
    if result.passed:
        return [Text(f"passed  {title}  ({result.seconds:.2f} s)", style="green")]
    lines: list[RenderableType] = [Text(f"failed  {title}  ({result.seconds:.2f} s)", style="bold red")]
    for difference in result.differences:
        lines += [Text(f"  after {difference.drop}, {difference.table}:"), _side_by_side(difference)]
    return lines + ([Text(f"  {result.refused}")] if result.refused else [])


def _side_by_side(difference: Difference) -> RowsView:
    """The rows that differ: those that were expected and those that are there."""
    columns = list((difference.expected or difference.found)[0])
    rows = [["expected", *row.values()] for row in difference.expected]
    rows += [["found", *row.values()] for row in difference.found]
    return RowsView(["", *columns], sorted(rows, key=lambda row: (repr(row[1:3]), row[0])))
