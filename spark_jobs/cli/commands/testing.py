"""`test`: the tests of source files; `check`: their problems; `schema`: their JSON Schema.

None of them needs an installation or Java.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_jobs.cli.app import EXIT_FAILED
from spark_jobs.cli.named_sources import find_source_or_file
from spark_jobs.cli.output import JsonOption, RowsView, emit, table
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from spark_jobs.trials.source_tests import CaseDifference, CaseResult

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
    """Run the tests in source files.

    All stages run over the rows of a test in a scratch folder, and the tables are compared.
    """
    from spark_jobs.sources.folder import source_files
    from spark_jobs.trials.source_tests import run_tests

    sources = [find_source_or_file(name) for name in names or source_files(load_settings().sources)]
    sources = [(source, path) for source, path in sources if names or source.tests]
    if not sources:
        raise ParameterError(
            expected="a source file with `tests`", found="none", next_step="add `tests:` to a source file"
        )
    results = [
        (source.name, result)
        for source, path in sources
        for result in run_tests(source, path.read_text(encoding="utf-8-sig"), case or (), orders, seed)
    ]
    document = {"tests": [_document(name, result) for name, result in results], "seed": seed}
    emit(
        as_json, document, lambda: Group(*(part for name, result in results for part in _case_view(name, result, seed)))
    )
    if not all(result.passed for _, result in results):
        raise typer.Exit(EXIT_FAILED)


def check(names: NamesArgument = None, as_json: JsonOption = False) -> None:
    """List all problems of source files.

    It reads the files alone.
    """
    from spark_jobs.sources import read_sources
    from spark_jobs.sources.problems import SourceFileError

    right: list[str] = []
    wrong: list[SourceFileError] = []
    if names:
        for name in names:
            try:
                right.append(find_source_or_file(name)[0].name)
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
    """Print the JSON Schema of source files, for editors.

    An editor reads it by `# yaml-language-server: $schema=FILE` in a source file.
    """
    from spark_jobs.sources.schema import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")


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


def _case_view(source: str, result: CaseResult, seed: int) -> list[RenderableType]:
    order = f", order {result.order} of seed {seed}" if result.order else ""
    title = f"{source}: {result.name.replace('_', ' ')}{order}"
    if result.passed:
        return [Text(f"passed  {title}  ({result.seconds:.2f} s)", style="green")]
    lines: list[RenderableType] = [Text(f"failed  {title}  ({result.seconds:.2f} s)", style="bold red")]
    for difference in result.differences:
        lines += [Text(f"  after {difference.drop}, {difference.table}:"), _side_by_side(difference)]
    return lines + ([Text(f"  {result.refused}")] if result.refused else [])


def _side_by_side(difference: CaseDifference) -> RowsView:
    """The rows that differ: those that were expected and those that are there."""
    columns = list((difference.expected or difference.found)[0])
    rows = [["expected", *row.values()] for row in difference.expected]
    rows += [["found", *row.values()] for row in difference.found]
    return table(["", *columns], sorted(rows, key=lambda row: (repr(row[1:3]), row[0])))
