"""Saved plans beside the lake: the changes that each plan predicted, to be compared with those that the run made.

Nothing depends on them: a run that applies a plan checks the state for which it was made, which is in the saved file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

Counts = Mapping[str, Mapping[str, int]]
"""The numbers of rows that would be inserted, changed and removed, by published table."""


def keep_plan(home: Path, plan_id: str, counts: Counts) -> None:
    """Keep the counts that a plan predicts."""
    _write(_plan(home, plan_id), {"plan_id": plan_id, "counts": counts})


def note_applied(home: Path, run_id: str, plan_id: str) -> None:
    """Note that a run has applied a plan."""
    _write(_run(home, run_id), {"run_id": run_id, "plan_id": plan_id})


def applied_plan_id(home: Path, run_id: str) -> str | None:
    """The id of the plan that a run has applied; None if it applied none."""
    noted = _read(_run(home, run_id))
    return None if noted is None or noted["run_id"] != run_id else noted["plan_id"]


def plan_of_run(home: Path, run_id: str) -> dict[str, Any] | None:
    """The plan that a run has applied, as its `plan_id` and `counts`; None if it applied none, or the plan was not
    kept."""
    plan_id = applied_plan_id(home, run_id)
    return None if plan_id is None else _read(_plan(home, plan_id))


def _plan(home: Path, plan_id: str) -> Path:
    return home / "plans" / f"{plan_id}.json"


def _run(home: Path, run_id: str) -> Path:
    # pages ask with any text
    digest = sha256(run_id.encode(errors="surrogateescape")).hexdigest()
    return home / "plans" / "runs" / f"{digest[:32]}.json"


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")


def _read(path: Path) -> dict[str, Any] | None:
    with suppress(FileNotFoundError, ValueError):
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document
    return None
