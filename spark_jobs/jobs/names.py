"""The names that users read follow the definition that is published, once, also after a crash in between.

They follow the code too: what a newer version of Tidemark defines otherwise is defined anew with the next run.
"""

from __future__ import annotations

import json
from pathlib import Path

from spark_jobs.jobs.context import Stage
from spark_jobs.restatement.catalog import define_names, names_version
from spark_jobs.sources import load_sources

_WINDOW = "window."


def names_follow(stage: Stage) -> None:
    """Define the source's names anew, and remember what they show."""
    marker = _marker(stage)
    before = json.loads(marker.read_text()) if marker.exists() else {}
    windows = [part.removeprefix(_WINDOW) for part in before if part.startswith(_WINDOW)]
    define_names(stage.lake, stage.source, list(load_sources(stage.settings.sources).values()), windows)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(_shown(stage))


def let_names_follow(stage: Stage) -> None:
    """`names_follow`, unless they show this already."""
    marker = _marker(stage)
    if not marker.exists() or marker.read_text() != _shown(stage):
        names_follow(stage)


def _shown(stage: Stage) -> str:
    """The definition by parts, and what all names are made of."""
    return json.dumps({**stage.source.definition_parts(), "names": names_version(stage.source)}, sort_keys=True)


def _marker(stage: Stage) -> Path:
    return stage.settings.home / "views" / f"{stage.source.name}.definition"
