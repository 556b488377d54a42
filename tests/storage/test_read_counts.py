"""Reads are counted, also by several processes at once."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from spark_jobs.storage.coordination import read_counts
from spark_jobs.storage.coordination.read_counts import Reads, count_read, keep_reads, reads_of
from spark_jobs.storage.descriptions.quality_tables import READS
from spark_jobs.storage.lakes.file_lake import FileLake


@pytest.fixture
def lake(tmp_path: Path) -> FileLake:
    lake = FileLake(tmp_path / "lake")
    lake.catalog.ensure({"quality": ""}, [READS])
    return lake


def _count_many(home: Path) -> None:
    for number in range(50):
        count_read(home, "flights")
        count_read(home, "flights", of_class=number % 3)


def test_no_read_is_lost_between_processes(lake: FileLake, tmp_path: Path) -> None:
    assert reads_of(lake, tmp_path, "flights") == Reads()
    with ProcessPoolExecutor(3) as pool:
        list(pool.map(_count_many, [tmp_path] * 3))
    count_read(tmp_path, "weather", of_class=3)
    by_class = {0: 51, 1: 51, 2: 48}
    assert (reads_of(lake, tmp_path, "flights"), reads_of(lake, tmp_path, "weather")) == (
        Reads(150, by_class),
        Reads(0, {3: 1}),
    )


@pytest.mark.parametrize(
    ("text", "known"),
    [("many", Reads()), ("7", Reads(7)), ('{"all": 2, "3": 4, "x": 9}', Reads(2, {3: 4})), ("[]", Reads())],
)
def test_a_count_of_an_older_version_is_of_all_entities_and_one_that_is_none_of_nothing(
    lake: FileLake, tmp_path: Path, text: str, known: Reads
) -> None:
    (tmp_path / "reads").mkdir()
    (tmp_path / "reads" / "flights").write_text(text)
    assert reads_of(lake, tmp_path, "flights") == known
    count_read(tmp_path, "flights")
    assert reads_of(lake, tmp_path, "flights").of_all == known.of_all + 1


def test_who_may_only_read_the_lake_reads_uncounted(lake: FileLake, tmp_path: Path) -> None:
    (tmp_path / "reads").write_text("no folder, so nothing can be put into it")
    count_read(tmp_path, "flights")
    assert reads_of(lake, tmp_path, "flights") == Reads()


def test_counts_of_several_homes_are_in_the_lake_and_outlive_them(lake: FileLake, tmp_path: Path) -> None:
    for name, of_class in (("one", None), ("two", 3), ("one", 3), ("two", None)):
        count_read(tmp_path / name, "flights", of_class=of_class)
        keep_reads(lake, tmp_path / name, "flights")
    assert reads_of(lake, tmp_path / "one", "flights") == Reads(2, {3: 2})
    count_read(tmp_path / "two", "flights")
    commits = lake.commits
    assert reads_of(lake, tmp_path / "two", "flights") == Reads(3, {3: 2})
    assert reads_of(lake, tmp_path / "of nobody", "flights") == Reads(2, {3: 2})
    keep_reads(lake, tmp_path / "one", "flights")
    assert lake.commits == commits, "nothing was counted since"


def test_a_kill_after_the_commit_counts_no_read_twice(
    lake: FileLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        count_read(tmp_path, "flights")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(read_counts, "_write", killed)
        keep_reads(lake, tmp_path, "flights")
    assert reads_of(lake, tmp_path, "flights") == Reads(3)
    keep_reads(lake, tmp_path, "flights")
    count_read(tmp_path, "flights", of_class=1)
    assert reads_of(lake, tmp_path, "flights") == Reads(3, {1: 1})
