"""What a backfill asks of Airflow: each slice once, one after another, no more after a failure or a stop; of a paused
DAG nothing that starts runs nobody asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.server import backfill as backfills
from spark_jobs.server.airflow_api import AirflowApi, AirflowRefused
from spark_jobs.server.backfill import (
    BackfillFailed,
    BackfillSlice,
    DagPaused,
    SliceRun,
    carry_out,
    failed_drops,
    last_backfill,
    new_backfill,
    runs_of,
)
from spark_jobs.sources import Schedule, Source
from tests.server.test_airflow_runs import supervised

SLICES = [BackfillSlice("2015-01-01", "2015-01-02", 2, 20), BackfillSlice("2015-01-03", "2015-01-03", 1, 10)]
DAY_US = 86_400_000_000
REFUSAL = "gate_failed: expected the checks of window to hold, found one that does not"


class Airflow:
    """As much of Airflow's API as a backfill uses: a run ends once it has been looked at twice, unless the DAG is
    paused, as `outcomes` say of the range that it names; `away` is how often it does not answer, and how often it is
    busy, `rejected` the runs whose plan was. `calls` are those that change something."""

    def __init__(self, *, paused: bool = False, away: int = 0, rejected: Sequence[str] = (), **outcomes: str) -> None:
        self.rejected = rejected
        self.paused, self.away, self.busy, self.outcomes = paused, away, away, outcomes
        self.tasks = {"land": "success", "seal": "success", "window": "failed", "compact": "upstream_failed"}
        self.calls: list[tuple[str, Any]] = []
        self.made: dict[str, dict[str, Any]] = {}
        self.looks: dict[str, int] = {}

    def get(self, path: str, **parameters: Any) -> Any:
        if path == "dags/meters":
            return {"is_paused": self.paused, "max_active_runs": 16}
        if path == "dags/meters/dagRuns":
            begins = parameters.get("run_id_pattern", "%").split("%")[0]
            found = [run for run in self.made.values() if run["dag_run_id"].startswith(begins)]
            return {"dag_runs": found, "next_cursor": None}
        if path.endswith("/taskInstances"):
            return {"task_instances": [{"task_id": name, "state": state} for name, state in self.tasks.items()]}
        if path.endswith("window/xcomEntries/failure"):
            return {"value": REFUSAL}
        if path.endswith("return_value"):
            assert parameters == {"stringify": False}
            return {"value": {"rows": 7}}
        if path.endswith("xcomEntries/rejected"):
            if path.split("/")[3] in self.rejected:
                return {"value": True}
            raise AirflowRefused(expected="a", found="b", status=404, path=path)
        if self.away:
            self.away -= 1
            raise AirflowRefused(expected="a", found="b", status=None, path=path)
        run = self.made[path.rpartition("/")[2]]
        self.looks[run["dag_run_id"]] = self.looks.get(run["dag_run_id"], 0) + (not self.paused)
        if self.looks[run["dag_run_id"]] == 2:
            run["state"] = self.outcomes.get(f"of_{run['conf']['from'][-2:]}", "success")
        return run

    runs = AirflowApi.runs

    def patch(self, path: str, body: Any) -> Any:
        self.paused = body["is_paused"]
        self.calls.append(("paused", self.paused))

    def post(self, path: str, body: Any) -> Any:
        assert (path, body["logical_date"]) == ("dags/meters/dagRuns", None)
        if self.busy:
            self.busy -= 1
            raise AirflowRefused(expected="a", found="b", status=503, path=path)
        assert all(run["state"] in ("success", "failed") for run in self.made.values()), "one at a time"
        times = {"start_date": "2015-01-01T00:00:00Z", "end_date": "2015-01-01T00:01:00Z", "queued_at": "2015"}
        self.made[body["dag_run_id"]] = {**body, **times, "state": "queued"}
        self.calls.append(("run", body["conf"]))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfills, "POLL_S", 0.0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


RUN_1 = ("run", {"from": "2015-01-01", "to": "2015-01-02"})
RUN_2 = ("run", {"from": "2015-01-03", "to": "2015-01-03"})


def run(settings: Settings, airflow: Airflow, *, by_itself: bool = False, **options: Any) -> list[SliceRun]:
    backfill = new_backfill("meters", SLICES)
    return carry_out(settings, cast(AirflowApi, airflow), backfill, by_itself=by_itself, **options)


def go_on(settings: Settings, airflow: Airflow) -> list[SliceRun]:
    return carry_out(settings, cast(AirflowApi, airflow), last_backfill(settings, "meters"), by_itself=False)


def test_each_slice_is_one_run_after_the_other_and_says_its_range(settings: Settings) -> None:
    airflow, looks = Airflow(away=2), []
    done = run(settings, airflow, on_look=lambda runs: looks.append([each.state for each in runs]))
    assert airflow.calls == [RUN_1, RUN_2]
    assert [(each.state, each.rows, each.seconds) for each in done] == [("success", 7, 60.0)] * 2
    assert done[0].run_id.startswith("drops__2015-01-01__2015-01-02__")
    assert looks[0] == ["queued", "waiting"]
    assert looks[-1] == ["success", "success"]


def test_a_run_is_asked_for_what_the_backfill_was(settings: Settings) -> None:
    airflow = Airflow()
    backfill = new_backfill("meters", SLICES[1:], accept_definition=True, pass_gap=True)
    carry_out(settings, cast(AirflowApi, airflow), backfill, by_itself=False)
    assert airflow.calls == [("run", {**RUN_2[1], "accept_definition": True, "pass_gap": True})]
    assert last_backfill(settings, "meters") == backfill


def test_a_paused_dag_that_nothing_starts_is_unpaused_until_the_runs_have_ended(settings: Settings) -> None:
    airflow = Airflow(paused=True)
    run(settings, airflow)
    assert airflow.calls == [("paused", False), RUN_1, RUN_2, ("paused", True)]


def test_a_paused_dag_with_a_schedule_stays_paused_unless_told(settings: Settings) -> None:
    airflow = Airflow(paused=True)
    with pytest.raises(DagPaused, match="--unpause"):
        run(settings, airflow, by_itself=True)
    assert airflow.calls == []
    run(settings, airflow, by_itself=True, unpause=True)
    assert airflow.calls == [("paused", False), RUN_1, RUN_2]


def test_after_a_failure_nothing_is_started_and_the_next_time_goes_on_there(settings: Settings) -> None:
    airflow = Airflow(paused=True, of_01="failed")
    with pytest.raises(BackfillFailed, match=r"of 2015-01-01 to 2015-01-02 failed at `window`") as failure:
        run(settings, airflow)
    assert f"({REFUSAL}); 0 drops are done" in failure.value.found
    assert failure.value.facts["run"] == next(iter(airflow.made))
    assert (failure.value.facts["stage"], failure.value.facts["error"]) == ("window", REFUSAL)
    assert airflow.calls == [("paused", False), RUN_1, ("paused", True)]
    airflow.outcomes.clear()
    done = go_on(settings, airflow)
    assert [each.state for each in done] == ["success", "success"]
    assert [each.attempt for each in done] == [2, 1]
    assert [each.attempt for each in runs_of(cast(AirflowApi, airflow), last_backfill(settings, "meters"))] == [2, 1]


def test_asked_to_stop_it_ends_after_the_present_run_and_goes_on_with_the_next(settings: Settings) -> None:
    asked: list[bool] = []
    airflow = Airflow()
    done = run(settings, airflow, asked_to_stop=lambda: bool(asked), on_look=lambda _: asked.append(True))
    assert airflow.calls == [RUN_1]
    assert [each.state for each in done] == ["success", "waiting"]
    go_on(settings, airflow)
    assert airflow.calls == [RUN_1, RUN_2]


def test_a_run_that_has_gone_on_meanwhile_is_waited_for_and_not_started_again(settings: Settings) -> None:
    airflow = Airflow(paused=True)

    def leave(_: list[SliceRun]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings, airflow, on_look=leave)
    assert airflow.calls == [("paused", False), RUN_1], "unpaused for as long as the run needs"
    go_on(settings, airflow)
    assert airflow.calls == [("paused", False), RUN_1, RUN_2]


def test_a_backfill_that_is_refused_leaves_the_last_one_to_be_resumed(settings: Settings) -> None:
    run(settings, Airflow())
    other = new_backfill("meters", SLICES[1:])
    with pytest.raises(DagPaused):
        carry_out(settings, cast(AirflowApi, Airflow(paused=True)), other, by_itself=True)
    assert last_backfill(settings, "meters").slices == tuple(SLICES)


@pytest.mark.parametrize("busy", [0, 1])
def test_who_waits_for_an_airflow_that_is_gone_is_told_to_start_it_and_resume(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, busy: int
) -> None:
    monkeypatch.setattr(backfills, "AWAY_S", -1.0)
    airflow = Airflow(away=1)
    airflow.busy = busy
    with pytest.raises(AirflowRefused, match="`tidemark up`, then `tidemark backfill meters --resume`"):
        run(settings, airflow)


def test_an_airflow_that_its_supervisor_keeps_running_is_waited_for(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfills, "AWAY_S", -1.0)
    supervised(settings)
    airflow = Airflow(away=3)
    airflow.busy = 0
    assert [each.state for each in run(settings, airflow)] == ["success", "success"]


def test_who_waits_is_told_why_airflow_does_not_get_on(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfills, "PATIENCE_S", -1.0)
    airflow, waits = Airflow(away=1), list[str]()
    pauses = iter([True])

    def pause(_: list[SliceRun]) -> None:
        airflow.paused = next(pauses, airflow.paused)

    def unpause(whom: str) -> None:
        waits.append(whom)
        airflow.paused = airflow.paused and "unpaused" not in whom

    run(settings, airflow, on_look=pause, on_wait=unpause)
    assert [whom.partition(",")[0].partition(":")[0] for whom in waits] == [
        "Airflow",
        "the DAG meters to be unpaused",
        *(f"Airflow to begin {run_id}" for run_id in airflow.made),
    ]
    assert "fewer than 16 runs of meters are under way (`dag.max_active_runs`)" in waits[-1]


def test_without_a_backfill_there_is_nothing_to_go_on_with(settings: Settings) -> None:
    with pytest.raises(ParameterError, match="a backfill of meters that was begun"):
        last_backfill(settings, "meters")


def answer(run_id: str, state: str, queued: str, first: str, last: str, **conf: Any) -> dict[str, Any]:
    conf |= {"from": first, "to": last}
    run = {"dag_id": "meters", "dag_run_id": run_id, "run_type": "manual", "run_after": f"{queued}T00:00:00Z"}
    times = {"queued_at": queued, "data_interval_start": None, "data_interval_end": None, "logical_date": None}
    return {**run, **times, "state": state, "conf": conf}


def test_drops_have_failed_whose_newest_run_did() -> None:
    airflow = Airflow(rejected=["no"])
    runs = [
        answer("a", "failed", "2015-02-01", "2015-01-01", "2015-01-04"),
        answer("b", "success", "2015-02-02", "2015-01-02", "2015-01-02"),
        answer("c", "failed", "2015-01-31", "2015-01-05", "2015-01-05"),
        answer("d", "success", "2015-02-01", "2015-01-05", "2015-01-06"),
        # what does nothing mends nothing
        answer("look", "success", "2015-02-03", "2015-01-01", "2015-01-01", dry_run=True),
        answer("no", "success", "2015-02-03", "2015-01-03", "2015-01-03", plan=True),
        answer("yes", "success", "2015-02-03", "2015-01-04", "2015-01-04", plan=True),
        answer("refused", "failed", "2015-02-03", "2014-12-31", "2015-01-06"),
    ]
    airflow.made = {run["dag_run_id"]: run for run in runs}
    source = cast(Source, SimpleNamespace(name="meters", drops=Schedule(1_420_070_400_000_000, DAY_US)))
    assert failed_drops(cast(AirflowApi, airflow), source) == {1 - 1, 3 - 1}
