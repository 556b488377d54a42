"""Rows of one delta, in a file, in files of a drop and in drops: one counts, whatever finds the others."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.landing import blocks
from tests.jobs.harness import DAY, START, Session, run_one, write_lines, write_source
from tests.support.distribution import distribute_all

DAYS = 3


def in_this_process(_: pytest.MonkeyPatch) -> None:
    """As a small drop is landed."""


def in_tasks(patch: pytest.MonkeyPatch) -> None:
    """As a large drop onto many chunks: hashes by many ranges, chunks read by Spark's tasks."""
    patch.setattr(blocks, "HASHED_BYTES", 400)
    distribute_all(patch)


@pytest.mark.parametrize("way", [in_this_process, in_tasks])
def test_of_each_delta_one_row_counts_and_the_others_are_duplicates(
    lake: Session,
    spark_settings: Settings,
    tmp_path: Path,
    way: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    way(monkeypatch)
    chance = random.Random(20240101)
    home = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))
    rows = 0
    ids: set[str] = set()
    for day in range(DAYS):
        for name in ("a.ndjson", "b.ndjson"):
            # of 60 readings some 20 have been told before, or are again in this file
            own = [f"m{chance.randrange(4)}-{day * 50 + chance.randrange(90)}" for _ in range(60)]
            at = f"{START + day * DAY:%Y-%m-%dT12:00:00Z}"
            lines = [{"id": i, "meter": i.split("-")[0], "at": at, "seen": at, "load": 1, "heat": 0.5} for i in own]
            write_lines(home, day, [json.dumps(line) for line in lines], name)
            rows += len(own)
            ids.update(own)
        lo = START + day * DAY
        run_one(lake, "land", source="meters", lo=lo, hi=lo + DAY, run_id=f"day-{day}", settings=home)
        landed = lake.sql("SELECT explode(delta_ids) AS id FROM bronze.meters_chunks WHERE diff > 0").collect()
        assert sorted(row.id for row in landed) == sorted(ids)
        assert lake.table("bronze.duplicates").count() == rows - len(ids)
