"""When a source was audited last is known to runs, also where the note is gone or cut."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.storage.coordination.audit_notes import last_audit, note_audit


def test_the_last_audit_is_told(tmp_path: Path) -> None:
    assert last_audit(tmp_path, "meters") == "never"
    note_audit(tmp_path, "meters", "audit-1", 0)
    assert last_audit(tmp_path, "meters").endswith(", all held")
    note_audit(tmp_path, "meters", "audit-2", 2)
    assert "2 did not hold: `tidemark quality meters --run audit-2`" in last_audit(tmp_path, "meters")
    assert last_audit(tmp_path, "weather") == "never"
    (tmp_path / "audits" / "meters.json").write_text('{"at":')
    assert last_audit(tmp_path, "meters") == "never"
