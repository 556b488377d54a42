"""The campaign can strike at each kind of commit: it runs by hand, and nothing else would notice a renamed method."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.chaos.crash_points import COMMITS, strike_at_commit


def test_a_commit_is_struck_whatever_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    originals = {name: getattr(SparkLake, name) for name in COMMITS}
    for name, original in originals.items():
        monkeypatch.setattr(SparkLake, name, original)
    strike_at_commit({"commit": 10**9, "does": "kill_before"}, tmp_path / "report")
    assert {name for name, original in originals.items() if getattr(SparkLake, name) is original} == set()
