"""When a source was audited last, in a file beside the lake: runs say it, and need no table for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path


def note_audit(home: Path, source: str, run_id: str, failed: int) -> None:
    """Remember an audit that has just ended, and how many invariants did not hold."""
    path = _note(home, source)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"at": datetime.now(UTC).isoformat(), "run_id": run_id, "failed": failed}))


def last_audit(home: Path, source: str) -> str:
    """The last audit in words."""
    try:
        note = json.loads(_note(home, source).read_text())
        at, failed = datetime.fromisoformat(note["at"]), int(note["failed"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "never"
    outcome = (
        "all held" if failed == 0 else f"{failed} did not hold: `tidemark quality {source} --run {note['run_id']}`"
    )
    return f"{at:%Y-%m-%d %H:%M}, {outcome}"


def _note(home: Path, source: str) -> Path:
    return home / "audits" / f"{source}.json"
