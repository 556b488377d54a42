"""`settings`: every setting with its present value and its meaning."""

from __future__ import annotations

import typer

from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import ENVIRONMENT_PREFIX, Settings, load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(settings)


def settings(as_json: JsonOption = False) -> None:
    """List all settings: variable, present value and meaning."""
    present = load_settings().model_dump(mode="json")
    knobs = [
        {"variable": f"{ENVIRONMENT_PREFIX}{name.upper()}", "value": present[name], "meaning": field.description}
        for name, field in Settings.model_fields.items()
    ]
    emit(as_json, knobs, lambda: table(["variable", "value", "meaning"], [list(knob.values()) for knob in knobs]))
