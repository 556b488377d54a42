"""The rows that a run's page shows of its changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.portal.changes import _shares, changes
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.overview import source_facts
from spark_jobs.sources import load_source
from tests.jobs.harness import Reading, Session, run, write_drops, write_source

NIGHT = 24 * 60
FIRST = [Reading(0, 600, "z", 5), Reading(0, 720, "z", 7)]
"""Two windows and two shifts of the last meter."""
SECOND = [Reading(1, NIGHT + 60 * hour, meter, 1) for meter in "abcd" for hour in range(0, 20, 4)]
"""New rows of the first meters."""
LATE = [Reading(1, 660, "z", 3)]
"""A row between the shifts of the last meter: it changes a window of each kind, and the two shifts become one."""


@pytest.mark.parametrize("most", [3, 50])
def test_a_row_that_changed_is_shown_before_rows_that_only_came(
    lake: Session, spark_settings: Settings, most: int
) -> None:
    settings = write_source(spark_settings)
    write_drops(settings, [*FIRST, *SECOND, *LATE])
    for drop in range(2):
        run(lake, settings, drop, drop)
    source, held = load_source(settings.sources / "meters.yml"), HeldLake(Path(settings.lake))
    last = source_facts(held, source).runs.find("test-1-1")
    assert last is not None and last.published is not None
    hourly, shifts, states = changes(held, source, last.published, most)
    for each in (hourly, shifts):
        first = each.pairs[0]
        assert first["before"]["meter"] == "z" and first["after"]["total"] > first["before"]["total"]
        kinds = [(pair["before"] is None, pair["after"] is None) for pair in each.pairs]
        assert len(kinds) == min(most, each.rows)
        assert (True, False) in kinds, "a row that came"
    assert (shifts.changed, shifts.removed) == (1, 1)
    assert sum(pair["after"] is None for pair in shifts.pairs) == 1
    assert states.changed == 1 and states.pairs[0]["after"]["entity"] == "z"


def test_one_row_of_each_kind_is_shown_and_then_as_many_of_the_first_as_fit() -> None:
    assert _shares([0, 0, 9], 3) == [0, 0, 3]
    assert _shares([9, 9, 9], 3) == [1, 1, 1]
    assert _shares([9, 0, 9], 3) == [2, 0, 1]
    assert _shares([1, 0, 9], 5) == [1, 0, 4]
    assert _shares([2, 1, 0], 50) == [2, 1, 0]
