"""Backfills through Airflow: runs of a source's DAG that take many drops each, one after another, watched until they
have ended.

The plan of a backfill is kept in a file under home; its progress is asked of Airflow. So a resumed backfill takes the
existing runs into account, also a run that has progressed since.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.model import FIRST, RANGE_RUN
from spark_jobs.server.airflow_api import AirflowApi, AirflowRefused
from spark_jobs.server.airflow_runs import drops_of_run
from spark_jobs.server.state import write_json
from spark_jobs.server.status import runs_airflow
from spark_jobs.sources import Source
from spark_jobs.sources.dag_runs import FAILURE, REJECTED, takes_whole_drops

POLL_S = 1.0
DAG_WAIT_S = 120.0
"""The seconds in which the DAG of a new file must appear: Airflow looks for new files every few seconds."""

AWAY_S = 120.0
"""The seconds for which Airflow may be away. A server that was killed is back within 40."""

PATIENCE_S = 30.0
"""The seconds for which a run may be queued, or Airflow away, before people are informed. The DAG of a run under way is
looked at in this interval, too."""


class DagPaused(TidemarkError):
    """Runs of a paused DAG make no progress, and unpausing it would start runs that nobody asked for. Facts: `dag`."""

    code = "dag_paused"


class BackfillFailed(TidemarkError):
    """A run of a backfill failed. Facts: `dag`, `runs` (run id -> state), `run` (the failed one), `stage` and `error`
    of its first failed task (None where Airflow has no answer)."""

    code = "backfill_failed"


@dataclass(frozen=True, slots=True)
class BackfillSlice:
    """The drops of one run: the labels of the first and the last, the number of drops, and the bytes of their files."""

    first: str
    last: str
    drops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Backfill:
    """The plan of a backfill; `identity` distinguishes it from all other backfills of the source."""

    source: str
    slices: tuple[BackfillSlice, ...]
    pass_gap: bool = False
    identity: str = ""
    accept_definition: bool = False

    def run_id(self, number: int, attempt: int = 1) -> str:
        """The id of the run of the slice with this number, in its given attempt."""
        each = self.slices[number]
        again = f"__{attempt}" if attempt > 1 else ""
        return f"{RANGE_RUN}{each.first}__{each.last}__{self.identity}{again}"


@dataclass(frozen=True, slots=True)
class SliceRun:
    """A slice and its newest run. `state` is Airflow's, or `waiting` if there is no run yet. `rows` is the number of
    rows that the run landed, `attempt` the number of starts."""

    slice: BackfillSlice
    run_id: str
    state: str = "waiting"
    seconds: float | None = None
    rows: int | None = None
    attempt: int = 0

    @property
    def under_way(self) -> bool:
        """True if Airflow runs it, or has it in the queue."""
        return self.state in ("queued", "running")


def new_backfill(
    source: str, slices: Sequence[BackfillSlice], *, pass_gap: bool = False, accept_definition: bool = False
) -> Backfill:
    """A backfill of these slices, with an identity made of the present time."""
    return Backfill(source, tuple(slices), pass_gap, f"{datetime.now(UTC):%Y%m%dT%H%M%S}", accept_definition)


def last_backfill(settings: Settings, source: str) -> Backfill:
    """The backfill of the source that was begun last. Raises `ParameterError` if there is none."""
    try:
        content = json.loads(_file(settings, source).read_text())
    except FileNotFoundError:
        raise ParameterError(
            expected=f"a backfill of {source} that was begun",
            found="none",
            next_step=f"begin one: tidemark backfill {source} --from D --to D",
        ) from None
    slices = tuple(BackfillSlice(**each) for each in content.pop("slices"))
    return Backfill(slices=slices, **content)


def carry_out(
    settings: Settings,
    api: AirflowApi,
    backfill: Backfill,
    *,
    by_itself: bool,
    unpause: bool = False,
    asked_to_stop: Callable[[], bool] = lambda: False,
    on_look: Callable[[list[SliceRun]], None] = lambda _: None,
    on_wait: Callable[[str], None] = lambda _: None,
) -> list[SliceRun]:
    """Run every slice that has not succeeded, one after another, and wait until the last run has ended.

    Once asked to stop, it starts no further run, and returns when the present run has ended. If the caller is
    interrupted, Airflow goes on with the present run. Unless it is refused, the backfill becomes the one that
    `last_backfill` returns.

    `on_look` gets all slices with their runs, about once a second. `on_wait` gets the obstacle of the present run, if
    it makes no progress, and again whenever the obstacle changes.

    Runs of a paused DAG make no progress. A DAG that starts runs only when asked (`by_itself` is false) is unpaused for
    the time of the backfill. A DAG with a schedule would start a run of today as well, so it is unpaused only with
    `unpause`, and stays so.

    Raises:
        AirflowRefused: Airflow does not have the DAG, refuses a run, or is gone.
        DagPaused: the DAG is paused, has a schedule, and `unpause` is not given.
        BackfillFailed: a run failed; the runs after it were not started.
    """
    dag = backfill.source
    paused = _wait_for_dag(api, dag)["is_paused"]
    if paused and by_itself and not unpause:
        raise _dag_paused(dag)
    runs = runs_of(api, backfill)
    if paused:
        api.patch(f"dags/{dag}", {"is_paused": False})
    try:
        write_json(_file(settings, dag), asdict(backfill))
        for number in (number for number, run in enumerate(runs) if run.state != "success"):
            if not runs[number].under_way:
                if asked_to_stop():
                    break
                runs[number] = _start(api, backfill, number, runs[number].attempt + 1)
            watch = _Watch(settings, api, dag, on_wait)
            while runs[number].under_way:
                on_look(runs)
                time.sleep(POLL_S)
                runs[number] = watch.look(runs[number])
            on_look(runs)
            if runs[number].state != "success":
                raise _backfill_failed(api, dag, runs)
        return runs
    finally:
        # not before the last run has ended: runs of a paused DAG make no progress
        if paused and not by_itself and not any(run.under_way for run in runs):
            api.patch(f"dags/{dag}", {"is_paused": True})


def runs_of(api: AirflowApi, backfill: Backfill) -> list[SliceRun]:
    """The slices of a backfill, each with its newest run in Airflow."""
    newest: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
    for run in api.runs(backfill.source, run_id_pattern=f"{RANGE_RUN}%__{backfill.identity}%"):
        first, last, attempt = _parts(run["dag_run_id"])
        newest[first, last] = max(newest.get((first, last), (0, {})), (attempt, run), key=lambda each: each[0])
    result = []
    for number, each in enumerate(backfill.slices):
        attempt, run = newest.get((each.first, each.last), (0, {}))
        slice_run = SliceRun(each, backfill.run_id(number, attempt or 1), attempt=attempt)
        result.append(_with(api, backfill.source, slice_run, run) if run else slice_run)
    return result


def failed_drops(api: AirflowApi, source: Source) -> set[int]:
    """The numbers of the drops whose newest run in Airflow failed, without dry runs and runs with a rejected plan."""
    newest: dict[int, tuple[str, str]] = {}
    for run in api.runs(source.name):
        drops = drops_of_run(run, source.drops)
        if drops and not _says_nothing_of_drops(api, run):
            for seq_no in drops:
                newest[seq_no] = max(newest.get(seq_no, ("", "")), (run["queued_at"] or "", run["state"]))
    return {seq_no for seq_no, (_, state) in newest.items() if state == "failed"}


def _says_nothing_of_drops(api: AirflowApi, run: dict[str, Any]) -> bool:
    """True if the run was a dry run, or a person rejected its plan, or it was not about whole drops."""
    conf = run["conf"] or {}
    if not takes_whole_drops(conf):
        return True
    rejected = run["state"] == "success" and conf.get("plan") and _xcom(api, run["dag_id"], run["dag_run_id"], REJECTED)
    return bool(conf.get("dry_run") or rejected)


def _parts(run_id: str) -> tuple[str, str, int]:
    """The parts of a run's id: the label of the first drop, the label of the last drop, and the attempt."""
    first, last, _, *again = run_id.removeprefix(RANGE_RUN).split("__")
    return first, last, int(again[0]) if again else 1


def _start(api: AirflowApi, backfill: Backfill, number: int, attempt: int) -> SliceRun:
    each, run_id = backfill.slices[number], backfill.run_id(number, attempt)
    asked = {"pass_gap": backfill.pass_gap, "accept_definition": backfill.accept_definition}
    conf = {"from": each.first, "to": each.last, **{name: True for name, is_asked in asked.items() if is_asked}}
    note = f"{each.drops} drops, {each.first} to {each.last}: {number + 1} of {len(backfill.slices)} of a backfill"
    request = {"dag_run_id": run_id, "logical_date": None, "conf": conf, "note": note}
    deadline = time.monotonic() + AWAY_S
    while True:
        try:
            api.post(f"dags/{backfill.source}/dagRuns", request)
            break
        except AirflowRefused as refusal:
            if refusal.facts["status"] == httpx.codes.CONFLICT:
                break  # the run exists: the answer to an earlier call was lost
            if not _is_away(refusal):
                raise
            if time.monotonic() > deadline:
                raise _airflow_gone(backfill.source, refusal) from refusal
        time.sleep(POLL_S)
    return SliceRun(each, run_id, "queued", attempt=attempt)


def _is_away(refusal: AirflowRefused) -> bool:
    """True if Airflow did not answer, or had an error of its own: it is restarting, or busy."""
    status = refusal.facts["status"]
    return status is None or status >= httpx.codes.INTERNAL_SERVER_ERROR


def _airflow_gone(dag: str, refusal: AirflowRefused) -> AirflowRefused:
    return AirflowRefused(
        expected=refusal.expected,
        found=refusal.found,
        consequence="Airflow continues the runs that it has begun once it is up again; no later run was started",
        next_step=f"start it with `tidemark up`, then `tidemark backfill {dag} --resume`",
        **refusal.facts,
    )


class _Watch:
    """The watch over one run until it has ended. `on_wait` gets the obstacle if Airflow makes no progress with it."""

    def __init__(self, settings: Settings, api: AirflowApi, dag: str, on_wait: Callable[[str], None]) -> None:
        self._settings = settings
        self._api = api
        self._dag = dag
        self._on_wait = on_wait
        self._answered = self._examined = time.monotonic()
        self._last_obstacle = ""

    def look(self, run: SliceRun) -> SliceRun:
        """The run with its present state, or unchanged while Airflow does not answer.

        Raises `AirflowRefused` once Airflow is gone: it has not answered for `AWAY_S` seconds, and no supervisor of
        this installation keeps it running."""
        now = time.monotonic()
        try:
            answer = self._api.get(f"dags/{self._dag}/dagRuns/{run.run_id}")
            run = _with(self._api, self._dag, run, answer)
            if run.under_way and now - self._examined > PATIENCE_S:
                self._tell(self._obstacle(run))
                self._examined = now
            self._answered = now
        except AirflowRefused as refusal:
            if not _is_away(refusal):
                raise
            if now - self._answered > AWAY_S and not runs_airflow(self._settings):
                raise _airflow_gone(self._dag, refusal) from refusal
            if now - self._answered > PATIENCE_S:
                self._tell("Airflow, which does not answer")
        return run

    def _obstacle(self, run: SliceRun) -> str:
        """The obstacle that keeps the run from making progress; empty if there is none."""
        dag = self._api.get(f"dags/{self._dag}")
        if dag["is_paused"]:
            return f"the DAG {self._dag} to be unpaused: somebody has paused it, so no further stage of the run begins"
        if run.state == "queued":
            room = f"fewer than {dag['max_active_runs']} runs of {self._dag} are under way (`dag.max_active_runs`)"
            return f"Airflow to begin {run.run_id}: it does when its scheduler runs and {room}"
        return ""

    def _tell(self, whom: str) -> None:
        if whom and whom != self._last_obstacle:
            self._on_wait(whom)
        self._last_obstacle = whom


def _with(api: AirflowApi, dag: str, run: SliceRun, answer: dict[str, Any]) -> SliceRun:
    state = answer["state"]
    rows = _rows(api, dag, run.run_id) if state == "success" else None
    return replace(run, state=state, seconds=_seconds(answer), rows=rows)


def _rows(api: AirflowApi, dag: str, run_id: str) -> int:
    """The number of rows that a run landed, as its first stage returned it; 0 if its drops were empty."""
    return int((_xcom(api, dag, run_id, "return_value") or {}).get("rows", 0))


def _xcom(api: AirflowApi, dag: str, run_id: str, key: str, stage: str = FIRST) -> Any:
    """The value that a stage of a run returned under `key`; None if there is none."""
    try:
        path = f"dags/{dag}/dagRuns/{run_id}/taskInstances/{stage}/xcomEntries/{key}"
        return api.get(path, stringify=False)["value"]
    except AirflowRefused as refusal:
        if refusal.facts["status"] != httpx.codes.NOT_FOUND:
            raise
        return None


def _wait_for_dag(api: AirflowApi, dag: str) -> Any:
    """Airflow's description of the DAG, as soon as Airflow has the DAG. Raises `AirflowRefused` after `DAG_WAIT_S`."""
    deadline = time.monotonic() + DAG_WAIT_S
    while True:
        try:
            return api.get(f"dags/{dag}")
        except AirflowRefused as refusal:
            if refusal.facts["status"] != httpx.codes.NOT_FOUND or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def _seconds(run: dict[str, Any]) -> float | None:
    if run["start_date"] is None or run["end_date"] is None:
        return None
    start, ended = (datetime.fromisoformat(run[name]) for name in ("start_date", "end_date"))
    return round((ended - start).total_seconds(), 1)


def _file(settings: Settings, source: str) -> Path:
    return settings.home / "backfills" / f"{source}.json"


def _dag_paused(dag: str) -> DagPaused:
    return DagPaused(
        expected=f"the DAG {dag} to be unpaused, or to have no schedule",
        found="a paused one that is scheduled: unpausing it starts a run of the last drop as well, and from then on one"
        " after each drop",
        consequence="nothing was started",
        next_step="repeat it with --unpause if its schedule may begin; or write `dag: {schedule: manual}` in the source"
        " file; or use `tidemark run`, which needs no Airflow",
        dag=dag,
    )


def _backfill_failed(api: AirflowApi, dag: str, runs: list[SliceRun]) -> BackfillFailed:
    failed = next(run for run in runs if run.state == "failed")
    stage, error = _failed_task(api, dag, failed.run_id)
    finished = sum(run.slice.drops for run in runs if run.state == "success")
    at_stage = "" if stage is None else f" at `{stage}`"
    reason = "" if error is None else f" ({error})"
    return BackfillFailed(
        expected=f"every run of {dag} to succeed",
        found=f"run {failed.run_id} of {failed.slice.first} to {failed.slice.last} failed{at_stage}{reason};"
        f" {finished} drops are done",
        consequence="no run after it was started; it has published nothing, unless it failed at `publish`: what follows"
        " the publication itself, such as marts, fails there, too",
        next_step="do what the error says, or look at the log of the task in Airflow's UI; then"
        f" `tidemark backfill {dag} --resume`",
        dag=dag,
        runs={run.run_id: run.state for run in runs if run.state != "waiting"},
        run=failed.run_id,
        stage=stage,
        error=error,
    )


def _failed_task(api: AirflowApi, dag: str, run_id: str) -> tuple[str | None, str | None]:
    """The stage whose task failed, and the error that ended the task; None where Airflow has no answer."""
    try:
        tasks = api.get(f"dags/{dag}/dagRuns/{run_id}/taskInstances")["task_instances"]
    except AirflowRefused:
        return None, None  # the failure of the run is reported without them
    stage = next((task["task_id"] for task in tasks if task["state"] == "failed"), None)
    return stage, None if stage is None else _xcom(api, dag, run_id, FAILURE, stage)
