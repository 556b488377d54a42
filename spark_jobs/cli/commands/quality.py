"""`quality`: the checks of the last runs with their verdicts, and the place of the report."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError

COLUMNS = ["source", "run", "gate", "passed", "not passed", "what did not pass"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(quality)


def quality(
    source: Annotated[str | None, typer.Argument(help="One source; default: all.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Newest runs to show of each source.")] = 5,
    run: Annotated[
        str | None, typer.Option("--run", help="One run by its id, with the rows that break a check.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the checks of the last runs, and which did not pass.

    The checks are those of gates and of the source file, suites of one's own, drift, and dbt's tests. Exit code 1 if
    the newest run shown of a source failed a check; a warning is no failure.
    """
    settings = load_settings()
    from spark_jobs.gates import data_docs_index
    from spark_jobs.gates.results import newest_runs
    from spark_jobs.storage.descriptions.quality_tables import RESULTS
    from spark_jobs.storage.lakes.spark_lake import SparkLake

    if source is not None:
        known_source(settings, source)
    with server_session(settings, "tidemark-quality") as spark:
        results = SparkLake(spark).records(RESULTS)
    runs_to_show = newest_runs(results, source=source, run_id=run, runs=runs)
    if run is not None and not runs_to_show:
        raise ParameterError(
            expected="a run whose checks are kept", found=run, next_step="`tidemark quality` names the newest runs"
        )
    newest = {of_run[0]["source"]: of_run for of_run in reversed(runs_to_show)}
    broken = any(r["verdict"] in ("failed", "error") for of_run in newest.values() for r in of_run)
    rows = [row for of_run in runs_to_show for row in _gates(of_run)]
    report = str(data_docs_index(settings))
    named = [r for of_run in runs_to_show for r in of_run if run is not None or r["verdict"] != "passed"]
    document = {
        "verdicts": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
        "results": [{**r, "sample": json.loads(r["sample"] or "[]")} for r in named],
        "report": report,
    }
    people = [Text(_line(r)) for r in named] if run is not None else []
    emit(as_json, document, lambda: Group(table(COLUMNS, rows), *people, Text(f"report: {report}")))
    if broken:
        raise typer.Exit(1)


def _gates(of_run: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """One row per gate of one run's results."""
    rows = []
    for gate in dict.fromkeys(r["gate"] for r in of_run):
        of_gate = [r for r in of_run if r["gate"] == gate]
        others = [f"{r['name']} {r['verdict']}: {r['observed']}" for r in of_gate if r["verdict"] != "passed"]
        first = of_gate[0]
        rows.append(
            (first["source"], first["run_id"], gate, len(of_gate) - len(others), len(others), "; ".join(others))
        )
    return rows


def _line(result: dict[str, Any]) -> str:
    """A result in lines, with up to three of its rows."""
    expected = f", expected {result['expected']}" if result["expected"] else ""
    because = f" (because: {result['because']})" if result["because"] else ""
    lines = [f"{result['gate']} {result['name']} {result['verdict']}: {result['expectation']}"]
    lines.append(f"  found {result['observed']}{expected}{because}")
    lines += [f"  e.g. {row}" for row in json.loads(result["sample"] or "[]")[:3]]
    return "\n".join([*lines, *([f"  -> {result['on_failure']}"] if result["on_failure"] else [])])
