"""Reads are counted, also by several processes at once."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from spark_jobs.storage.read_counts import count_read, reads_of


def _count_many(home: Path) -> None:
    for _ in range(50):
        count_read(home, "flights")


def test_no_read_is_lost_between_processes(tmp_path: Path) -> None:
    assert reads_of(tmp_path, "flights") == 0
    with ProcessPoolExecutor(3) as pool:
        list(pool.map(_count_many, [tmp_path] * 3))
    count_read(tmp_path, "weather", 4)
    assert (reads_of(tmp_path, "flights"), reads_of(tmp_path, "weather")) == (150, 4)


def test_a_count_that_is_none_counts_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "reads").mkdir()
    (tmp_path / "reads" / "flights").write_text("many")
    count_read(tmp_path, "flights")
    assert reads_of(tmp_path, "flights") == 1
