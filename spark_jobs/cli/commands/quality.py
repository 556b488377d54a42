"""`quality`: verdicts of the last runs, and where the report is."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(quality)


def quality(
    source: Annotated[str | None, typer.Argument(help="One source; default: all.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Newest runs to show.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Verdicts of the gates in the last runs; exit code 1 if the newest run of a source failed one."""
    settings = load_settings()
    from spark_jobs.gates import data_docs_index

    with server_session(settings, "tidemark-quality") as spark:
        verdicts = spark.table("quality.verdicts").toArrow().to_pylist()
    verdicts = [v for v in verdicts if source in (None, v["source"])]
    tokens = sorted({(v["source"], v["token"]) for v in verdicts}, key=lambda pair: -pair[1])[:runs]
    rows = []
    for name, token in tokens:
        of_run = [v for v in verdicts if (v["source"], v["token"]) == (name, token)]
        for gate in dict.fromkeys(v["gate"] for v in of_run):
            of_gate = [v for v in of_run if v["gate"] == gate]
            failed = [f"{v['measure']}={v['observed']}" for v in of_gate if not v["success"]]
            held = len(of_gate) - len(failed)
            rows.append((name, of_run[0]["run_id"], gate, held, len(failed), "; ".join(failed)))
    report = str(data_docs_index(settings))
    columns = ["source", "run", "gate", "held", "failed", "what failed"]
    document = {"verdicts": [dict(zip(columns, row, strict=True)) for row in rows], "report": report}
    emit(as_json, document, lambda: Group(table(columns, rows), Text(f"report: {report}")))
    newest: dict[str, str] = {}
    for row in rows:
        newest.setdefault(row[0], row[1])
    if any(row[4] and newest[row[0]] == row[1] for row in rows):
        raise typer.Exit(1)
