"""Which run landed a row, once its file has changed and the trace has merged."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.reads.why import why
from spark_jobs.sources import load_source
from tests.jobs.harness import SOURCE, Reading, Session, lake_of, run, write_lines, write_source

DAY = 24 * 60
PLAIN = SOURCE[: SOURCE.index("windows:")] + SOURCE[SOURCE.index("state:") :] + "retention: {since: 1 hour}\n"


@pytest.mark.long
def test_a_row_that_a_changed_file_left_as_it_was_is_named_by_its_own_landing(
    lake: Session, spark_settings: Settings, tmp_path: Path
) -> None:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(settings, PLAIN)
    stays, goes, comes = Reading(0, 10, "a", 5), Reading(0, 20, "a", 7), Reading(0, 20, "a", 8)
    write_lines(home, 0, [stays.line(), goes.line()])
    run(lake, home, 0, 0)
    write_lines(home, 0, [stays.line(), comes.line()])
    write_lines(home, 1, [Reading(1, DAY + 10, "a", 1).line()])
    run(lake, home, 0, 1)
    source = load_source(home.sources / "meters.yml")
    expected = [(10, 5, "test-0-0"), (20, 8, "test-0-1"), (DAY + 10, 1, "test-0-1")]

    def told() -> list[tuple[int, int, str]]:
        found = why(lake_of(lake), source, "meters", ["a"])
        return [(int(d["delta_id"].split("-")[1]), d["load"], d["run_id"]) for d in found.deltas]

    assert told() == expected
    for day in (2, 3):
        merged = run(lake, home, day, day)[3]["merges"]
    assert merged
    assert told() == expected
