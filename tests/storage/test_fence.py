"""Leases and fences: one attempt at a time, tokens that only grow, and a run that another has overtaken stands back."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from spark_jobs.storage.coordination.leases import LeaseLost, SourceBusy, hold_still, take, visit
from spark_jobs.storage.delta.fences import Superseded


def _take(folder: Path, run_id: str = "r1", *, starts_run: bool = True, wait_s: float = 0.0):  # type: ignore[no-untyped-def]
    return take(folder, source="flights", run_id=run_id, starts_run=starts_run, wait_s=wait_s)


def test_every_attempt_has_a_greater_token(tmp_path: Path) -> None:
    tokens = []
    for _ in range(3):
        with _take(tmp_path) as lease:
            tokens.append(lease.fence.token)
    assert tokens == [1, 2, 3]


def test_an_attempt_that_failed_has_used_its_token_up(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), _take(tmp_path):
        raise RuntimeError
    with _take(tmp_path) as lease:
        assert lease.fence.token == 2


def test_the_fence_is_deltas_transaction_of_the_source(tmp_path: Path) -> None:
    with _take(tmp_path) as lease:
        assert lease.fence.writer_options() == {"txnAppId": "tidemark/flights", "txnVersion": "1"}


def test_a_later_stage_of_the_run_sees_what_earlier_ones_staged(tmp_path: Path) -> None:
    with _take(tmp_path) as lease:
        lease.record("window")
        lease.verdicts.append({"gate": "silver"})
        lease.save()
    with _take(tmp_path, starts_run=False) as lease:
        assert lease.staged == {"window": 1}
        assert lease.verdicts == [{"gate": "silver"}]


def test_a_lease_that_goes_while_it_is_held_ends_the_attempt_and_not_the_next_one(tmp_path: Path) -> None:
    folder = tmp_path / "leases"
    with take(folder, source="meters", run_id="a", starts_run=True, wait_s=0) as lease:
        shutil.rmtree(folder)
        with pytest.raises(LeaseLost, match="do the same again"):
            lease.save()
        assert not folder.exists(), "a new file would not have the lock"
    with take(folder, source="meters", run_id="b", starts_run=True, wait_s=0) as lease:
        lease.save()


def test_a_new_run_starts_with_nothing_staged(tmp_path: Path) -> None:
    with _take(tmp_path) as lease:
        lease.record("window")
        lease.save()
    with _take(tmp_path, "r2") as lease:
        assert lease.staged == {}


def test_a_run_that_another_has_overtaken_stands_back(tmp_path: Path) -> None:
    with _take(tmp_path, "r1"):
        pass
    with _take(tmp_path, "r2"):
        pass
    with pytest.raises(Superseded) as refusal, _take(tmp_path, "r1", starts_run=False):
        pass
    assert (refusal.value.facts["run_id"], refusal.value.facts["by"]) == ("r1", "r2")


def _hold(folder: Path, taken: object, release: object) -> None:
    with _take(folder, "other"):
        taken.set()  # type: ignore[attr-defined]
        release.wait(30)  # type: ignore[attr-defined]


def test_another_process_at_work_is_named(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    taken, release = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, taken, release))
    process.start()
    try:
        assert taken.wait(30)
        with pytest.raises(SourceBusy) as refusal, _take(tmp_path):
            pass
        assert refusal.value.facts["holder"] == "other"
        assert str(process.pid) in refusal.value.found
        assert process.pid != os.getpid()
    finally:
        release.set()
        process.join()
    with _take(tmp_path) as lease:
        assert lease.fence.token == 2


def test_who_looks_at_a_source_writes_nothing_and_keeps_attempts_off(tmp_path: Path) -> None:
    with hold_still(tmp_path / "leases", source="flights") as lease:
        assert lease.fence.token == 0
    assert not (tmp_path / "leases").exists()
    with _take(tmp_path) as lease:
        lease.past = [(100, 8.0)]
        lease.save()
    before = (tmp_path / "flights.lease").read_bytes()
    with hold_still(tmp_path, source="flights") as one, hold_still(tmp_path, source="flights") as other:
        assert [*map(tuple, one.past)] == [*map(tuple, other.past)] == [(100, 8.0)]
        with pytest.raises(SourceBusy), _take(tmp_path):
            pass
    assert (tmp_path / "flights.lease").read_bytes() == before
    with _take(tmp_path), pytest.raises(SourceBusy), hold_still(tmp_path, source="flights", wait_s=0.0):
        pass


def test_a_visit_between_two_stages_leaves_the_run_its_source(tmp_path: Path) -> None:
    with _take(tmp_path) as lease:
        lease.record("window")
        lease.save()
    with visit(tmp_path, source="flights", wait_s=0) as seen:
        assert (seen.fence.token, seen.staged) == (2, {"window": 1})
        with pytest.raises(SourceBusy), _take(tmp_path, starts_run=False):
            pass
    with _take(tmp_path, starts_run=False) as lease:
        assert (lease.fence.token, lease.staged) == (3, {"window": 1})
