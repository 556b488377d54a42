"""What a plan said stands by the run that applied it."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.storage.coordination.kept_plans import keep_plan, note_applied, plan_of_run

COUNTS = {"silver.hourly": {"inserted": 3, "changed": 1, "removed": 0}}


def test_a_plan_is_told_of_the_run_that_applied_it_alone(tmp_path: Path) -> None:
    keep_plan(tmp_path, "abc", COUNTS)
    note_applied(tmp_path, "manual__2013-01-08T00:00:00+00:00", "abc")
    assert plan_of_run(tmp_path, "manual__2013-01-08T00:00:00+00:00") == {"plan_id": "abc", "counts": COUNTS}
    assert plan_of_run(tmp_path, "cli-1") is None
    # the plan was made elsewhere, or what was noted is cut
    note_applied(tmp_path, "cli-1", "not here")
    assert plan_of_run(tmp_path, "cli-1") is None
    (tmp_path / "plans" / "abc.json").write_text("{")
    assert plan_of_run(tmp_path, "manual__2013-01-08T00:00:00+00:00") is None
