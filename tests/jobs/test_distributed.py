"""Work that is cut into many tasks and waits on the disk has the same results as work in memory, within its bound."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import source_tables
from spark_jobs.sources import find_source
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from tests.effort import tries
from tests.jobs.harness import SOURCE, Reading, Session, run, write_drops, write_source
from tests.jobs.test_file_lake import CHAINS, KEPT, rows
from tests.support.distribution import deal_by_the_disk
from tests.support.file_session import FileSession

MIB = 1 << 20
GROWTH = 512 * MIB
"""The memory that a stage may take for wide rows beside the process's own: 64 MiB that wait or are sorted, the batches
that threads read ahead (32 MiB each), and copies of them. The rows as a whole take more."""


def tables(session: FileSession, settings: Settings) -> dict[str, list[str]]:
    """The rows of all tables of the source, without the columns that differ from run to run."""
    compared = [table for table in source_tables(find_source(settings.sources, "meters")) if table not in QUALITY]
    return {table.qualified: rows(session.lake, table) for table in compared}


@pytest.mark.slow
@hypothesis_settings(max_examples=tries(5))
@given(seed=st.integers(0, 2**32), text=st.sampled_from([SOURCE, CHAINS, KEPT]))
def test_days_that_are_dealt_out_by_the_disk_leave_the_same_tables(
    seed: int, text: str, spark_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    readings = [
        Reading(
            drop, max(drop * 1440 - chance.randrange(900), 0) + chance.randrange(1440), f"m{chance.randrange(9)}", n
        )
        for drop in range(3)
        for n in range(chance.randrange(60))
    ]
    runs = chance.choice([[(0, 0), (1, 1), (2, 2)], [(0, 2)], [(1, 2), (0, 0), (1, 1)]])
    left = []
    for distributed in (False, True):
        folder = tmp_path_factory.mktemp("lake")
        places = {"home": folder / "home", "landing": folder / "landing"}
        home = write_source(spark_settings.model_copy(update=places), text)
        write_drops(home, readings)
        session = FileSession(folder / "lake")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("spark_jobs.jobs.publish.build_data_docs", lambda _settings: 0)
            if distributed:
                deal_by_the_disk(patch)
            for first, last in runs:
                run(session, home, first, last)
        left.append(tables(session, home))
    assert left[0] == left[1]


def test_a_run_warns_of_rows_that_waited_on_the_disk(lake: Session, spark_settings: Settings, tmp_path: Path) -> None:
    places = {"home": tmp_path, "landing": tmp_path / "landing"}
    home = write_source(spark_settings.model_copy(update=places), f"{CHAINS}memory: {{max_bytes: 1 MiB}}\n")
    write_drops(home, [Reading(0, n % 1440, f"m{n % 50}", n) for n in range(12_000)])
    summaries = run(lake, home, 0, 0)
    memory = summaries[3]["memory"]["chains"]
    assert memory["level"] in ("high", "critical", "emergency")
    assert memory["flushed_runs"] > 0
    assert memory["peak_bytes"] <= memory["max_bytes"] == MIB
    assert any("gold.meters memory: " in line and "waited on the disk" in line for line in summaries[3]["not_passed"])
    warned = lake.table("quality.results").where("kind = 'memory' AND verdict = 'warned'").collect()
    assert {row.relation: row.failing for row in warned}["gold.meters"] == memory["flushed_runs"]
    write_drops(home, [Reading(1, 1500, "m1", 1)])
    summaries = run(lake, home, 1, 1)
    assert summaries[2]["memory"]["shifts"]["level"] in ("low", "normal")
    assert not any("memory" in line for summary in summaries for line in summary.get("not_passed", []))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["files", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_day_of_wide_rows_takes_no_more_memory_than_the_process_may(tmp_path: Path, kind: str) -> None:
    program = [sys.executable, "-m", "tests.jobs.wide_day", str(tmp_path), kind]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout.splitlines()[-1])
    assert grown["bytes_of_rows"] > GROWTH, "rows in memory as a whole would be seen"
    assert {stage: n for stage, n in grown["process"].items() if n > GROWTH} == {}
    assert {stage: n for stage, n in grown["workers"].items() if n > grown["bytes_of_rows"]} == {}
