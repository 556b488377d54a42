"""When a source was audited last, in a file beside the lake: runs and pages say it, and need no table for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class AuditNote:
    """An audit: when it ended, its run, and how many invariants did not hold."""

    at: datetime
    run_id: str
    failed: int


def note_audit(home: Path, source: str, run_id: str, failed: int) -> None:
    """Remember an audit that has just ended, and how many invariants did not hold."""
    path = _note(home, source)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"at": datetime.now(UTC).isoformat(), "run_id": run_id, "failed": failed}))


def audit_note(home: Path, source: str) -> AuditNote | None:
    """The last audit of a source; None if there was none."""
    try:
        note = json.loads(_note(home, source).read_text())
        return AuditNote(datetime.fromisoformat(note["at"]), str(note["run_id"]), int(note["failed"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def last_audit(home: Path, source: str) -> str:
    """The last audit in words."""
    note = audit_note(home, source)
    if note is None:
        return "never"
    shown = f"{note.failed} did not hold: `tidemark quality {source} --run {note.run_id}`"
    return f"{note.at:%Y-%m-%d %H:%M}, {shown if note.failed else 'all held'}"


def _note(home: Path, source: str) -> Path:
    return home / "audits" / f"{source}.json"
