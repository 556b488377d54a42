"""`tidemark run` among the runs of its source: it waits for its turn, says for whom, and has it to its last stage."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.cli.app import run
from spark_jobs.config import Settings
from spark_jobs.jobs import pipeline
from spark_jobs.jobs.request import Request
from spark_jobs.storage.coordination.turns import Line, NoDriver, Turn
from tests.cli.test_command_line import METERS

DAY = ("--from", "2026-01-01", "--to", "2026-01-01")


@pytest.fixture
def stages(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, bool, bool]]:
    """An installation whose stages only note their name, `pass_gap`, and whether another run could have its turn."""
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "meters.yml").write_text(METERS)
    monkeypatch.setenv("TIDEMARK_SOURCES", str(tmp_path / "sources"))
    ran: list[tuple[str, bool, bool]] = []

    def noted(name: str, *, request: Request, **_: Any) -> dict[str, Any]:
        ran.append((name, request.pass_gap, other(settings).step() is None))
        return {"stage": name, "seconds": 0.0, "commits": 0, "files": 0}

    monkeypatch.setattr(pipeline, "run_stage", noted)
    monkeypatch.setattr(pipeline, "open_session", lambda *_: SimpleNamespace(stop=lambda: None))
    return ran


def other(settings: Settings, run_id: str = "other") -> Line:
    return Line(settings.home / "leases", "meters", Turn(run_id, 0, "an earlier day"), NoDriver())


def test_a_run_has_its_turn_from_its_first_stage_to_its_last(
    settings: Settings, stages: list[tuple[str, bool, bool]]
) -> None:
    assert run(["run", "meters", *DAY, "--pass-gap", "--json"]) == 0
    assert stages == [(name, True, False) for name in ("land", "seal", "window", "compact", "publish")]
    assert other(settings).step() is None


def test_a_run_that_may_not_wait_is_refused_and_says_for_whom(
    settings: Settings, stages: list[tuple[str, bool, bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    holder = other(settings, "holder")
    assert holder.step() is None
    assert run(["run", "meters", *DAY, "--wait", "0", "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["holder"]) == ("source_busy", "run holder of an earlier day")
    assert stages == []


def test_a_run_waits_until_the_other_has_ended(
    settings: Settings,
    stages: list[tuple[str, bool, bool]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    holder = other(settings, "holder")
    assert holder.step() is None
    # the module's own name for `time`: other threads of the tests' process sleep, too
    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=lambda _: holder.end())
    monkeypatch.setattr("spark_jobs.storage.coordination.turns.time", clock)
    assert run(["run", "meters", *DAY, "--json"]) == 0
    assert len(stages) == 5
    assert "waits for run holder of an earlier day" in capsys.readouterr().err
