"""`quality`: verdicts of the last runs, and where the report is."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(quality)


def quality(
    source: Annotated[str | None, typer.Argument(help="One source; default: all.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Newest runs to show of each source.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Verdicts of the gates in the last runs; exit code 1 if the newest run of a source failed one."""
    settings = load_settings()
    from spark_jobs.gates import data_docs_index

    if source is not None:
        known_source(settings, source)
    with server_session(settings, "tidemark-quality") as spark:
        verdicts = spark.table("quality.verdicts").toArrow().to_pylist()
    rows = []
    broken = False
    for name in sorted({v["source"] for v in verdicts if source in (None, v["source"])}):
        of_source = [v for v in verdicts if v["source"] == name]
        newest = sorted({v["token"] for v in of_source}, reverse=True)[:runs]
        broken |= any(not v["success"] for v in of_source if v["token"] == newest[0])
        rows += [row for token in newest for row in _gates([v for v in of_source if v["token"] == token])]
    report = str(data_docs_index(settings))
    columns = ["source", "run", "gate", "held", "failed", "what failed"]
    document = {"verdicts": [dict(zip(columns, row, strict=True)) for row in rows], "report": report}
    emit(as_json, document, lambda: Group(table(columns, rows), Text(f"report: {report}")))
    if broken:
        raise typer.Exit(1)


def _gates(of_run: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """One row per gate of one run's verdicts."""
    rows = []
    for gate in dict.fromkeys(v["gate"] for v in of_run):
        of_gate = [v for v in of_run if v["gate"] == gate]
        failed = [f"{v['measure']}={v['observed']}" for v in of_gate if not v["success"]]
        held = len(of_gate) - len(failed)
        rows.append((of_run[0]["source"], of_run[0]["run_id"], gate, held, len(failed), "; ".join(failed)))
    return rows
