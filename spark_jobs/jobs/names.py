"""The names that users read follow the definition that is published, once, also after a crash in between."""

from __future__ import annotations

import json
from pathlib import Path

from spark_jobs.jobs.context import Stage
from spark_jobs.restatement.catalog import follow_definition
from spark_jobs.sources import load_sources

_WINDOW = "window."


def names_follow(stage: Stage, definition: str) -> None:
    """Remember that the views show this definition (as `versions.version` gives it)."""
    marker = _marker(stage)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(definition)


def let_names_follow(stage: Stage, definition: str) -> None:
    """Create the source's views anew unless they show this definition, the one that is published."""
    marker = _marker(stage)
    before = marker.read_text() if marker.exists() else "{}"
    if before == definition:
        return
    windows = [part.removeprefix(_WINDOW) for part in json.loads(before) if part.startswith(_WINDOW)]
    follow_definition(stage.lake, stage.source, list(load_sources(stage.settings.sources).values()), windows)
    names_follow(stage, definition)


def _marker(stage: Stage) -> Path:
    return stage.settings.home / "views" / f"{stage.source.name}.definition"
