"""Reads are counted, also by several processes at once."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from spark_jobs.storage.coordination.read_counts import Reads, count_read, reads_of


def _count_many(home: Path) -> None:
    for number in range(50):
        count_read(home, "flights")
        count_read(home, "flights", of_class=number % 3)


def test_no_read_is_lost_between_processes(tmp_path: Path) -> None:
    assert reads_of(tmp_path, "flights") == Reads()
    with ProcessPoolExecutor(3) as pool:
        list(pool.map(_count_many, [tmp_path] * 3))
    count_read(tmp_path, "weather", of_class=3)
    by_class = {0: 51, 1: 51, 2: 48}
    assert (reads_of(tmp_path, "flights"), reads_of(tmp_path, "weather")) == (Reads(150, by_class), Reads(0, {3: 1}))


@pytest.mark.parametrize(
    ("text", "known"),
    [("many", Reads()), ("7", Reads(7)), ('{"all": 2, "3": 4, "x": 9}', Reads(2, {3: 4})), ("[]", Reads())],
)
def test_a_count_of_an_older_version_is_of_all_entities_and_one_that_is_none_of_nothing(
    tmp_path: Path, text: str, known: Reads
) -> None:
    (tmp_path / "reads").mkdir()
    (tmp_path / "reads" / "flights").write_text(text)
    assert reads_of(tmp_path, "flights") == known
    count_read(tmp_path, "flights")
    assert reads_of(tmp_path, "flights").of_all == known.of_all + 1


def test_who_may_only_read_the_lake_reads_uncounted(tmp_path: Path) -> None:
    (tmp_path / "reads").write_text("no folder, so nothing can be put into it")
    count_read(tmp_path, "flights")
    assert reads_of(tmp_path, "flights") == Reads()
