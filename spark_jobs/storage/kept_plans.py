"""Saved plans beside the lake: what each said a run would change, so that it can be held against what the run changed.

Nothing depends on them: a run that applies a plan checks what it was made on, which is in the file that was saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

Counts = Mapping[str, Mapping[str, int]]
"""By published table the rows that would be inserted, changed and removed."""


def keep_plan(home: Path, plan_id: str, counts: Counts) -> None:
    """Keep what a plan says."""
    _write(_plan(home, plan_id), {"plan_id": plan_id, "counts": counts})


def note_applied(home: Path, run_id: str, plan_id: str) -> None:
    """Note that a run has applied a plan."""
    _write(_run(home, run_id), {"run_id": run_id, "plan_id": plan_id})


def plan_of_run(home: Path, run_id: str) -> dict[str, Any] | None:
    """The plan that a run has applied, its `plan_id` and `counts`; None if there was none, or it is not here."""
    noted = _read(_run(home, run_id))
    return None if noted is None or noted["run_id"] != run_id else _read(_plan(home, noted["plan_id"]))


def _plan(home: Path, plan_id: str) -> Path:
    return home / "plans" / f"{plan_id}.json"


def _run(home: Path, run_id: str) -> Path:
    return home / "plans" / "runs" / f"{sha256(run_id.encode()).hexdigest()[:32]}.json"


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")


def _read(path: Path) -> dict[str, Any] | None:
    with suppress(FileNotFoundError, ValueError):
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document
    return None
