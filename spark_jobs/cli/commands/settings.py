"""`settings`: every setting with its present value, its origin and its meaning."""

from __future__ import annotations

import typer

from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import ENVIRONMENT_PREFIX, Settings, load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(settings)


def settings(as_json: JsonOption = False) -> None:
    """List all settings: variable, present value, origin and meaning.

    The key in the file `tidemark.toml` is the variable without TIDEMARK_, in small letters. Passwords are not printed.
    """
    from spark_jobs.settings.origins import read_origins
    from spark_jobs.settings.secret_texts import HIDDEN, hide_secrets
    from spark_jobs.settings.sources import SECRETS

    present, origins = load_settings(), read_origins(Settings)
    values = present.model_dump(mode="json")
    values |= {name: HIDDEN for name in SECRETS if values[name] is not None}
    knobs = [
        {
            "variable": f"{ENVIRONMENT_PREFIX}{name.upper()}",
            "value": hide_secrets(values[name]),
            "origin": origins[name],
            "meaning": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]
    emit(as_json, knobs, lambda: table(list(knobs[0]), [list(knob.values()) for knob in knobs]))
