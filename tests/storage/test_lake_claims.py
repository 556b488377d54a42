"""Claims of homes on a lake in S3: a second home, a lost one, and claims at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from spark_jobs.storage.coordination import lake_claims
from spark_jobs.storage.coordination.lake_claims import (
    LOST_AFTER_S,
    SILENT_S,
    Claimant,
    ClaimLost,
    LakeClaim,
    LakeClaimed,
)
from tests.moto import BUCKET, bucket_files, s3_server

pytestmark = pytest.mark.slow

ONE, OTHER = (Claimant(name, f"/srv/{name}", f"host-{name}") for name in ("one", "other"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3_server(tmp_path_factory.mktemp("s3")) as environment:
        yield environment


class Lake:
    """A lake in the store, and the seconds that claims have waited for others."""

    def __init__(self, name: str) -> None:
        self.place = f"s3a://{BUCKET}/{name}"
        self.waited_s = 0.0
        self.words: list[str] = []
        self.living: list[LakeClaim] = []

    def take(self, claimant: Claimant) -> LakeClaim:
        return LakeClaim.take(self.place, claimant, self._wait, self.words.append)

    def _wait(self, seconds: float) -> None:
        """Time passes: homes that live beat."""
        self.waited_s += seconds
        for claim in self.living:
            claim.beat()


@pytest.fixture
def lake(store: dict[str, str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lake:
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    return Lake(re.sub(r"\W", "", request.node.name))


def test_a_second_home_is_refused_by_the_name_of_the_first(lake: Lake) -> None:
    lake.living = [lake.take(ONE)]
    with pytest.raises(LakeClaimed) as refusal:
        lake.take(OTHER)
    assert refusal.value.facts["home"] == "/srv/one"
    assert "host-one" in refusal.value.found
    assert lake.waited_s < 5
    lake.living[0].beat()


def test_a_home_that_ended_in_order_is_followed_at_once(lake: Lake) -> None:
    lake.take(ONE).release()
    lake.living = [lake.take(OTHER)]
    assert lake.waited_s == 0
    assert lake.words == []
    with pytest.raises(LakeClaimed):
        lake.take(ONE)


def test_a_lost_home_is_taken_over_after_its_time_and_learns_it(lake: Lake) -> None:
    lost = lake.take(ONE)
    lost.beat()
    claim = lake.take(OTHER)
    assert lake.waited_s == LOST_AFTER_S
    assert len(lake.words) == 1
    assert "host-one" in lake.words[0]
    with pytest.raises(ClaimLost, match="another home has taken it over"):
        lost.beat()
    claim.beat()


def test_a_home_that_was_killed_takes_its_lake_again_at_once(lake: Lake) -> None:
    lake.take(ONE)
    lake.take(ONE).beat()
    assert lake.waited_s == 0


@pytest.mark.parametrize("claimed_before", [False, True])
def test_of_homes_that_claim_at_once_one_succeeds(lake: Lake, claimed_before: bool) -> None:
    if claimed_before:
        lake.take(Claimant("first", "/srv/first", "host")).release()
    claimants = [Claimant(str(number), f"/srv/{number}", "host") for number in range(8)]
    barrier = Barrier(len(claimants))

    def take(claimant: Claimant) -> LakeClaim | None:
        barrier.wait()
        try:
            # whoever comes later watches a home that gives a sign of life at each look
            claim = lake.take(claimant)
        except LakeClaimed:
            return None
        lake.living.append(claim)
        return claim

    with ThreadPoolExecutor(len(claimants)) as pool:
        taken = [claim for claim in pool.map(take, claimants) if claim is not None]
    assert len(taken) == 1
    taken[0].beat()


def test_a_store_that_refuses_for_a_while_is_waited_for_and_then_the_claim_is_given_up(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, now = lake.take(ONE), [0.0]
    monkeypatch.setattr(lake_claims.time, "monotonic", lambda: now[0])
    claim.beat()

    def refuse(_: str) -> None:
        raise OSError("503 SlowDown")

    with monkeypatch.context() as patch:
        patch.setattr(claim, "_write", refuse)
        now[0] = SILENT_S - 1
        claim.beat()
        now[0] = SILENT_S + 1
        with pytest.raises(ClaimLost, match="503 SlowDown"):
            claim.beat()
    claim.beat()


def test_beats_leave_one_object_a_lake(lake: Lake, store: dict[str, str]) -> None:
    for _ in range(3):
        claim = lake.take(ONE)
        claim.beat()
    from pyarrow import fs

    folder = f"{lake.place.removeprefix('s3a://')}/_homes/beats"
    (beat,) = bucket_files(store).get_file_info(fs.FileSelector(folder))
    assert beat.base_name == "2"
