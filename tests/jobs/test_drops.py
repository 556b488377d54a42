"""What stands of each drop, and how a backfill cuts drops into runs."""

from __future__ import annotations

import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.config import Settings
from spark_jobs.jobs.drops import LOOK_AHEAD, DropStatus, drops_of, follows_on, slices
from spark_jobs.sources import load_source
from spark_jobs.storage.lakes.stored_lake import StoredLake
from tests.jobs.harness import (
    DAY,
    SOURCE,
    START,
    Reading,
    Session,
    run,
    run_one,
    write_drops,
    write_lines,
    write_source,
)

LAKES = Path(__file__).parents[1] / "lakes"

drops = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 50)), unique_by=lambda each: each[0], max_size=40)


@given(drops, st.none() | st.integers(1, 9), st.integers(1, 120))
def test_slices_hold_every_drop_once_in_order_without_gaps_and_no_more_than_asked(
    given: list[tuple[int, int]], batch: int | None, most_bytes: int
) -> None:
    made = slices([DropStatus(n, "missing", 1, size, 0) for n, size in given], batch=batch, most_bytes=most_bytes)
    assert [drop.seq_no for each in made for drop in each] == sorted(n for n, _ in given)
    for each in made:
        assert [drop.seq_no for drop in each] == list(range(each[0].seq_no, each[0].seq_no + len(each)))
        size = sum(drop.bytes for drop in each)
        assert len(each) <= batch if batch else size <= most_bytes or len(each) == 1
    for one, other in pairwise(made):
        adjoining = one[-1].seq_no + 1 == other[0].seq_no
        full = len(one) == batch if batch else sum(drop.bytes for drop in one) + other[0].bytes > most_bytes
        assert full or not adjoining


def test_a_lake_of_an_earlier_release_says_what_has_landed_without_spark(tmp_path: Path) -> None:
    with tarfile.open(LAKES / "ranked_row_ids.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    settings = Settings(home=tmp_path, sources=tmp_path / "sources")
    source, lake = load_source(settings.sources / "meters.yml"), StoredLake(tmp_path / "lake")
    assert [(drop.seq_no, drop.state, drop.rows) for drop in drops_of(settings, source, lake)] == [
        (0, "landed", 5),
        (1, "landed", 4),
        (2, "landed", 2),
        (3, "landed", 3),
    ]
    write_lines(settings, 1, ["{}"], name="new.ndjson")
    write_lines(settings, 6, ["{}"])
    states = [drop.state for drop in drops_of(settings, source, lake)]
    assert states == ["landed", "partial", "landed", "landed", "missing", "missing", "missing"]
    assert [drop.seq_no for drop in drops_of(settings, source, lake, range(2, 4))] == [2, 3]
    assert [follows_on(settings, source, range(n, n + 1)) for n in range(6)] == [True] * 5 + [False]


def test_a_drop_that_failed_without_files_is_listed_and_files_after_a_long_silence_are_found(tmp_path: Path) -> None:
    text = SOURCE.replace("every: 1 day", "every: 5 min").replace("{date}", "{date}T{hour}{minute}")
    settings = write_source(Settings(home=tmp_path, landing=tmp_path / "landing"), text)
    source, lake = load_source(settings.sources / "meters.yml"), StoredLake(tmp_path / "lake")
    weekend, ended = 3 * LOOK_AHEAD, 4 * LOOK_AHEAD

    def states(**known: Any) -> list[tuple[str, int]]:
        drops = drops_of(settings, source, lake, ended=ended, **known)
        assert [drop.seq_no for drop in drops] == list(range(len(drops)))
        return [(drop.state, drop.files) for drop in drops]

    assert states() == []
    # one was asked for by mistake, of a time to come
    assert states(failed={2, 1_000_000}) == [("missing", 0)] * 3
    for seq_no in (weekend, ended + LOOK_AHEAD - 1, ended + 2 * LOOK_AHEAD - 1):
        path = settings.landing_folder / source.drops.path("meters/{date}T{hour}{minute}/a.ndjson", seq_no)
        path.parent.mkdir(parents=True)
        path.write_text("{}\n")
        assert states()[-2:] == [("missing", 0), ("missing", 1)]
        assert len(states()) == seq_no + 1


def test_each_drop_is_landed_missing_or_partial(lake: Session, spark_settings: Settings, tmp_path: Path) -> None:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    settings = write_source(settings)
    source = load_source(settings.sources / "meters.yml")
    stored = StoredLake(Path(settings.lake))

    def states() -> list[tuple[int, str, int]]:
        return [(drop.seq_no, drop.state, drop.rows) for drop in drops_of(settings, source, stored)]

    assert states() == []
    assert follows_on(settings, source, range(1))
    write_drops(settings, [Reading(0, 10, "a", 1), Reading(1, 1500, "a", 2), Reading(3, 5000, "b", 3)])
    assert states() == [(0, "missing", 0), (1, "missing", 0), (2, "missing", 0), (3, "missing", 0)]
    run(lake, settings, 0, 1)
    assert states() == [(0, "landed", 1), (1, "landed", 1), (2, "missing", 0), (3, "missing", 0)]
    assert follows_on(settings, source, range(2, 3))
    assert follows_on(settings, source, range(1)), "of a drop that was run before"
    assert not follows_on(settings, source, range(3, 4))
    write_lines(settings, 0, [Reading(0, 20, "a", 5).line()], name="b.ndjson")
    (settings.landing_folder / "meters" / "2024-01-02" / "a.ndjson").unlink()
    assert states()[:2] == [(0, "partial", 1), (1, "landed", 1)], "a file came, another one is gone and stays in"
    given: dict[str, Any] = {"source": "meters", "lo": START + 2 * DAY, "hi": START + 4 * DAY, "run_id": "left"}
    run_one(lake, "land", **given, settings=settings)
    assert states() == [(0, "partial", 1), (1, "landed", 1), (2, "partial", 0), (3, "partial", 1)]
    run(lake, settings, 2, 3)
    assert [state for _, state, _ in states()] == ["partial", "landed", "landed", "landed"]
    run(lake, settings, 0, 0, retract=True)
    assert states() == [(0, "partial", 0), (1, "landed", 1), (2, "landed", 0), (3, "landed", 1)]
    run(lake, settings, 0, 0)
    assert states()[0] == (0, "landed", 1), "what was taken back stays out"
