"""`spark-conf`: the configuration file for running a job through plain spark-submit."""

from __future__ import annotations

import typer
from rich.text import Text

from spark_jobs.cli.output import JsonOption, emit
from spark_jobs.config import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("spark-conf")(spark_conf)


def spark_conf(as_json: JsonOption = False) -> None:
    """Write Spark's configuration for a plain spark-submit.

    It prints the path of the file. Use it as `spark-submit --properties-file "$(tidemark spark-conf)" job.py`.
    """
    from spark_jobs.session import classic_conf, write_properties

    settings = load_settings()
    path = write_properties(settings)
    emit(as_json, {"path": str(path), "conf": classic_conf(settings)}, lambda: Text(str(path)))
