"""The manifest of a run that was interrupted after its commit: the publication is there, and its retry records it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.jobs import publish
from spark_jobs.model import STAGES
from tests.jobs.harness import SOURCE, Reading, Session, run, write_drops, write_source

FAILED, KILLED = OSError("no space left"), KeyboardInterrupt()


@pytest.mark.parametrize("stages", [("publish",), STAGES])
@pytest.mark.parametrize(("interruption", "recorded"), [(FAILED, ["failed", "published"]), (KILLED, ["published"])])
def test_a_run_that_published_and_was_interrupted_is_recorded_by_its_retry(
    lake: Session,
    spark_settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interruption: BaseException,
    recorded: list[str],
    stages: tuple[str, ...],
) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(home, SOURCE)
    write_drops(home, [Reading(drop, 1440 * drop + 10, "a", 5) for drop in range(2)])
    run(lake, home, 0, 0)

    def interrupt(*_: Any) -> None:
        raise interruption

    with monkeypatch.context() as patched:
        patched.setattr(publish, "let_names_follow", interrupt)
        with pytest.raises(type(interruption)):
            run(lake, home, 1, 1)
    assert lake.table("silver.shifts").count() == 2
    for stage in 2 * stages:  # the second retry has nothing to record
        run(lake, home, 1, 1, stages=[stage])
    first, *rows = lake.sql("SELECT * FROM quality.runs ORDER BY token").collect()
    assert [row.outcome for row in rows] == recorded
    last = rows[-1]
    assert (last.published_before, last.published) == (
        first.published,
        lake.table("trace.published").collect()[0].published,
    )
    assert {done["stage"] for done in json.loads(last.stages)} >= {"land", "publish"}
    outputs = {table: output["rows"] for table, output in json.loads(last.outputs).items()}
    assert outputs == {
        "silver.hourly_history": 1,
        "silver.shifts_history": 1,
        "silver.late_history": 0,
        "gold.state_history": 2,
    }
    restated = {table: output["restated"] for table, output in json.loads(last.outputs).items()}
    assert restated == {**dict.fromkeys(outputs, 0), "gold.state_history": 1}


def test_the_summary_of_publish_counts_restated_windows_by_table(
    lake: Session, spark_settings: Settings, tmp_path: Path
) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(home, SOURCE)
    write_drops(home, [Reading(0, 10, "a", 5), Reading(1, 1450, "a", 5), Reading(1, 20, "a", 7)])
    assert run(lake, home, 0, 0)[-1]["restated"] == {}
    restated = run(lake, home, 1, 1)[-1]["restated"]
    # the late row is beyond the limit of the hourly windows
    assert lake.table("silver.hourly").where("revision > 0").count() == 0
    assert (
        restated == {"silver.shifts": lake.table("silver.shifts").where("revision > 0").count()} == {"silver.shifts": 1}
    )
