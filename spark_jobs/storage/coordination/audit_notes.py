"""The time and result of each source's last audit, in a file beside the lake: runs and pages show it without reading a
table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class AuditNote:
    """An audit: the time of its end, its run, and the number of invariants that were broken."""

    at: datetime
    run_id: str
    failed: int


def note_audit(home: Path, source: str, run_id: str, failed: int) -> None:
    """Write down an audit that has just ended; `failed` is the number of broken invariants."""
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
    """The last audit in words: its time, and whether all invariants held; `never` if there was none."""
    note = audit_note(home, source)
    if note is None:
        return "never"
    failures = f"{note.failed} did not hold: `tidemark quality {source} --run {note.run_id}`"
    return f"{note.at:%Y-%m-%d %H:%M}, {failures if note.failed else 'all held'}"


def _note(home: Path, source: str) -> Path:
    return home / "audits" / f"{source}.json"
