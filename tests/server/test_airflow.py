"""Airflow's processes under the supervisor: healthy, behind a login, on the loopback, restarted, gone after `down`; and
the runs of a source in it, whoever starts them, one after another. Its stages only note that they ran."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import httpx
import psutil
import pytest

from spark_jobs.cli.backfill_progress import STOPPED
from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.server import control, processes
from spark_jobs.server.airflow_api import AirflowApi, AirflowRefused
from spark_jobs.server.airflow_parts import PARTS, admin_password
from spark_jobs.server.airflow_runs import AirflowRuns
from spark_jobs.server.backfill import BackfillSlice, SliceRun, carry_out, new_backfill
from spark_jobs.server.state import PartState, running_supervisor
from spark_jobs.server.status import status
from spark_jobs.sources import Schedule
from spark_jobs.storage.coordination.turns import Line, NoDriver, Turn, hold_turn
from tests.installations import ODD_NAME, TIDEMARK, readable_by_others, until
from tests.jobs.harness import SOURCE, write_source
from tests.server.strangers import Question, Reply, ask_as_nobody, forged_logins, routes

DAYS = Schedule(0, 86_400_000_000)

pytestmark = pytest.mark.airflow

DAG = """
from airflow.sdk import dag, task

@dag(schedule=None)
def probe():
    @task
    def answer():
        return 42
    answer()

probe()
"""

NOTING = """
import json, sys, time, types
from pathlib import Path
from airflow.sdk.exceptions import AirflowFailException

def noted(name, *, source, lo, hi, run_id, request, report_step):
    while name == "window" and Path({journal!r}).with_name("hold").exists():
        time.sleep(0.2)
    if Path({journal!r}).with_name(f"fails {{lo:%Y-%m-%d}}").exists():
        raise AirflowFailException("as the test wishes")
    with open({journal!r}, "a") as journal:
        journal.write(json.dumps([name, run_id, f"{{lo:%Y-%m-%d}}", (hi - lo).days]) + "\\n")
    return {{"stage": name, "files": 1, "known_files": 0}}

stage = types.ModuleType("spark_jobs.jobs.stage")
stage.run_stage = noted
sys.modules["spark_jobs.jobs.stage"] = stage
sys.path.insert(0, {dags!r})
import _tasks
from _factory import source_dag
from spark_jobs.sources import load_source

_tasks._preload_beside = lambda _: None
_tasks.StageOperator._follows_on = lambda self, drops: drops.start == {daily}
meters = source_dag(load_source(Path({source!r})))
"""
"""The DAG of a source, as the factory makes it, with stages that write a line and do nothing else."""

STAGES = ["land", "seal", "window", "compact", "publish"]

DAILY = 20
"""The day of January whose drop alone follows on those that have been run, as the DAG's stand-in says."""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, installation: Callable[[Path], Settings]) -> Iterator[Settings]:
    """An installation with Airflow, and one DAG of the test's own."""
    folder: Path = tmp_path_factory.mktemp("airflow")
    dags = folder / "dags"
    dags.mkdir()
    (dags / "probe.py").write_text(DAG)
    settings = installation(folder / ODD_NAME).model_copy(update={"dags": dags})
    settings = write_source(settings, SOURCE + "dag: {schedule: manual, retry_delay: 1 s}\n")
    source, journal = settings.home / "sources" / "meters.yml", settings.home / "journal"
    (dags / "meters.py").write_text(
        NOTING.format(source=str(source), journal=str(journal), dags=str(CHECKOUT / "dags"), daily=DAILY - 1)
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in ("control", "status"):
            patch.setattr(f"spark_jobs.server.{module}.code_version", lambda: "the code of this test")
        before = os.umask(0)
        assert control.up(settings).ok
        yield settings
        control.down(settings)
        os.umask(before)
    # in a new checkout Java writes its archive of classes first
    until(lambda: not processes.marked_processes(settings.home), 180, "processes are left")


@pytest.fixture
def api(airflow: Settings) -> Iterator[AirflowApi]:
    with AirflowApi(airflow) as client:
        yield client


def test_all_parts_run_and_report_health(airflow: Settings) -> None:
    report = status(airflow, wait_s=120)
    assert report.ok
    assert {service.name for service in report.services} == {"sql", "connect", "airflow"}
    assert all(part_of(airflow, name).condition == "running" for name in PARTS)


def test_a_call_without_a_login_is_refused(airflow: Settings) -> None:
    answer = httpx.get(f"{airflow.airflow_url}/api/v2/dags", trust_env=False)
    assert answer.status_code == 401


def test_a_wrong_password_is_refused(airflow: Settings) -> None:
    login = {"username": "admin", "password": admin_password(airflow) + "x"}
    assert httpx.post(f"{airflow.airflow_url}/auth/token", json=login, trust_env=False).status_code == 401


def test_the_portal_is_served_behind_the_login_and_in_the_navigation(airflow: Settings, api: AirflowApi) -> None:
    page = f"{airflow.airflow_url}/tidemark/index.html"
    refused = httpx.get(page, trust_env=False)
    assert (refused.status_code, refused.headers["location"]) == (307, "/auth/login?next=%2Ftidemark%2Findex.html")
    login = {"username": "admin", "password": admin_password(airflow)}
    token = httpx.post(f"{airflow.airflow_url}/auth/token", json=login, trust_env=False).json()["access_token"]
    shown = httpx.get(page, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60)
    assert shown.status_code == 200 and "nothing has run yet" in shown.text and "meters" in shown.text
    assert api.get("plugins/importErrors")["total_entries"] == 0
    (plugin,) = [plugin for plugin in api.get("plugins")["plugins"] if plugin["name"] == "tidemark"]
    assert {view["destination"] for view in plugin["external_views"]} == {
        "nav",
        "dag",
        "dag_run",
        "task",
        "task_instance",
    }


def test_the_generated_password_lets_us_in_and_no_example_is_loaded(airflow: Settings, api: AirflowApi) -> None:
    deadline = time.monotonic() + 120
    while len(found := [dag["dag_id"] for dag in api.get("dags")["dags"]]) < 2 and time.monotonic() < deadline:
        time.sleep(1)
    assert found == ["meters", "probe"]


def test_a_dag_runs_to_success(airflow: Settings, api: AirflowApi) -> None:
    api.patch("dags/probe", {"is_paused": False})
    run = api.post("dags/probe/dagRuns", {"logical_date": None})
    deadline = time.monotonic() + 180
    while (state := api.get(f"dags/probe/dagRuns/{run['dag_run_id']}")["state"]) in ("queued", "running"):
        assert time.monotonic() < deadline, state
        time.sleep(1)
    assert state == "success"


def test_what_airflow_writes_is_for_its_user_alone_whatever_the_umask(airflow: Settings) -> None:
    assert list(airflow.logs_dir.glob("airflow/dag_id=probe/**/*.log"))
    ours = airflow.home / "sources"
    assert [path for path in readable_by_others(airflow.home) if not path.is_relative_to(ours)] == []


def date(day: int) -> str:
    return f"2024-01-{day:02}"


def midnight(day: int) -> datetime:
    return datetime(2024, 1, day, tzinfo=UTC)


def backfill(settings: Settings, api: AirflowApi, *ranges: tuple[int, int]) -> list[SliceRun]:
    slices = [BackfillSlice(date(first), date(last), last - first + 1, 1) for first, last in ranges]
    return carry_out(settings, api, new_backfill("meters", slices), by_itself=False)


def noted(settings: Settings, days: range) -> list[tuple[str, str, str, int]]:
    """[stage, run, first drop, drops] in the order in which stages of these days ran."""
    journal = settings.home / "journal"
    lines = journal.read_text().splitlines() if journal.exists() else []
    entries = ((stage, run, first, drops) for stage, run, first, drops in map(json.loads, lines))
    return [entry for entry in entries if entry[2] in map(date, days)]


def expect_whole_runs_in_order(settings: Settings, days: range) -> None:
    lines = noted(settings, days)
    assert [(stage, day) for stage, _, day, _ in lines] == [(stage, date(day)) for day in days for stage in STAGES]


def ended(api: AirflowApi, days: range) -> dict[str, tuple[str, str]]:
    """Type and state of the runs of these days, once all have ended."""
    deadline = time.monotonic() + 800
    while True:
        runs = api.get("dags/meters/dagRuns", limit=1000)["dag_runs"]
        first = {run["dag_run_id"]: (run["conf"].get("from") or run["data_interval_start"])[:10] for run in runs}
        states = {first[run["dag_run_id"]]: (run["run_type"], run["state"]) for run in runs}
        mine = {day: states.get(day, ("", "")) for day in map(date, days)}
        if all(state in ("success", "failed") for _, state in mine.values()):
            return mine
        assert time.monotonic() < deadline, mine
        time.sleep(1)


def told_line(settings: Settings) -> str:
    """Who is in line before the source."""
    places = (settings.home / "leases" / "meters.line").glob("*")
    return " ".join(place.read_text() for place in places if not place.suffix)


T = TypeVar("T")


def beside(work: Callable[[], T]) -> Future[T]:
    """Do the work in a thread that no failing test waits for."""
    result: Future[T] = Future()

    def do() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    Thread(target=do, daemon=True).start()
    return result


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def tidemark(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **settings.environment()}
    return subprocess.run(
        [TIDEMARK, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_backfill_of_a_paused_dag_runs_its_days_and_starts_nothing_else(airflow: Settings, api: AirflowApi) -> None:
    api.patch("dags/meters", {"is_paused": True})
    done = backfill(airflow, api, (1, 1))
    assert [(run.state, run.rows) for run in done] == [("success", 0)]
    dag = api.get("dags/meters")
    assert (dag["is_paused"], dag["timetable_summary"], dag["next_dagrun_run_after"]) == (True, "manual", None)
    assert [run["dag_run_id"] for run in api.get("dags/meters/dagRuns")["dag_runs"]] == [done[0].run_id]
    expect_whole_runs_in_order(airflow, range(1, 2))


def test_a_backfill_of_airflows_own_with_many_days_at_once_runs_them_whole_and_in_order(
    airflow: Settings, api: AirflowApi
) -> None:
    api.patch("dags/meters", {"is_paused": False})
    leases, days = airflow.home / "leases", range(2, 5)
    dead = Turn("scheduled__of_a_run_that_is_gone", 0, "2023-12-31", staged=True)
    assert Line(leases, "meters", dead, NoDriver()).step() is None
    # `airflow backfill create` makes the same call
    api.post(
        "backfills",
        {
            "dag_id": "meters",
            "from_date": midnight(2).isoformat(),
            "to_date": midnight(4).isoformat(),
            "run_backwards": False,
            "dag_run_conf": {},
            "reprocess_behavior": "none",
            "max_active_runs": 4,
        },
    )
    assert ended(api, days) == {date(day): ("backfill", "success") for day in days}
    expect_whole_runs_in_order(airflow, days)


def test_runs_that_people_trigger_wait_for_one_beside_airflow_and_the_next_one_waits_for_them(
    airflow: Settings, api: AirflowApi
) -> None:
    leases, days = airflow.home / "leases", range(5, 7)
    told: list[str] = []
    with hold_turn(leases, "meters", Turn("cli-before", 0, "an earlier day"), driver=NoDriver()):
        for day in days:
            api.post("dags/meters/dagRuns", {"logical_date": midnight(day).isoformat()})
        deadline = time.monotonic() + 400
        runs = api.get("dags/meters/dagRuns", state="running")["dag_runs"]
        while not runs or not any(
            task["state"] == "deferred"
            for task in api.get(f"dags/meters/dagRuns/{runs[0]['dag_run_id']}/taskInstances")["task_instances"]
        ):
            assert time.monotonic() < deadline
            time.sleep(1)
            runs = api.get("dags/meters/dagRuns", state="running")["dag_runs"]
        assert noted(airflow, days) == []
    later = Turn("cli-after", 10**18, "a later day")
    with hold_turn(leases, "meters", later, driver=AirflowRuns(airflow, "meters", DAYS), on_wait=told.append):
        assert len(noted(airflow, days)) == len(days) * len(STAGES)
    assert told[0].startswith("run manual__")
    assert ended(api, days) == {date(day): ("manual", "success") for day in days}
    expect_whole_runs_in_order(airflow, days)


@pytest.mark.turns
def test_runs_from_every_door_at_once_follow_one_another_and_the_day_goes_before_the_backfills(
    airflow: Settings, api: AirflowApi
) -> None:
    told: list[str] = []
    leases = airflow.home / "leases"
    # Airflow takes half a minute to notice that a backfill has ended, and refuses another until then
    wait_for(lambda: all(each["completed_at"] for each in api.get("backfills", dag_id="meters")["backfills"]))
    with hold_turn(leases, "meters", Turn("cli-first", 0, "an earlier day"), driver=NoDriver()):
        mine = beside(lambda: backfill(airflow, api, (8, 9), (10, 12)))
        command = ["backfill", "create", "--dag-id", "meters", "--from-date", date(13), "--to-date", date(14)]
        theirs = beside(lambda: tidemark(airflow, "airflow", *command))
        wait_for(lambda: "drops__" in told_line(airflow))
        api.post("dags/meters/dagRuns", {"logical_date": midnight(DAILY).isoformat()})
        wait_for(lambda: "manual__" in told_line(airflow))
        assert theirs.result().returncode == 0, theirs.result().stderr
    later = Turn("cli-last", 10**18, "a later day")
    with hold_turn(leases, "meters", later, driver=AirflowRuns(airflow, "meters", DAYS), on_wait=told.append):
        lines = noted(airflow, range(8, DAILY + 1))
    assert [run.state for run in mine.result(300)] == ["success", "success"]
    assert told
    assert [stage for stage, _, _, _ in lines] == STAGES * 5, "whole runs, one after another"
    order = [(day, drops) for stage, _, day, drops in lines if stage == "land"]
    assert sorted(order) == [(date(8), 2), (date(10), 3), (date(13), 1), (date(14), 1), (date(DAILY), 1)]
    assert order[0] == (date(DAILY), 1)
    weights = {
        run["dag_run_id"]: api.get(f"dags/meters/dagRuns/{run['dag_run_id']}/taskInstances")["task_instances"][0]
        for run in api.get("dags/meters/dagRuns", limit=1000)["dag_runs"]
    }
    daily = {task["priority_weight"] for run, task in weights.items() if run.startswith("manual__")}
    others = {task["priority_weight"] for run, task in weights.items() if run.startswith(("drops__", "backfill__"))}
    assert min(daily) > max(others)


def test_the_schedulers_log_holds_no_error(airflow: Settings) -> None:
    lines = (airflow.logs_dir / "airflow-scheduler.log").read_text().splitlines()
    assert len(lines) > 10
    assert [line for line in lines if "[error" in line or "Traceback" in line] == []


@pytest.mark.turns
def test_the_command_picks_drops_that_failed_or_are_missing_and_goes_on_where_it_stopped(
    airflow: Settings, api: AirflowApi
) -> None:
    days = ("--from", date(21), "--to", date(24))

    def planned(*which: str) -> list[tuple[str, str]]:
        done = tidemark(airflow, "backfill", "meters", *days, *which, "--dry-run", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return [(run["from"], run["to"]) for run in json.loads(done.stdout)]

    fails = airflow.home / f"fails {date(22)}"
    fails.touch()
    # its stages do not ask what was left out before
    failed = tidemark(airflow, "backfill", "meters", *days, "--batch", "1", "--pass-gap")
    assert failed.returncode == 1
    told = " ".join(failed.stderr.split())
    assert "failed at `land` (unexpected: " in told and "as the test wishes" in told
    assert "then `tidemark backfill meters --resume`" in told
    assert [(stage, day) for stage, _, day, _ in noted(airflow, range(21, 25))] == [(s, date(21)) for s in STAGES]
    assert planned("--failed") == [(date(22), date(22))]
    # the stages of this test land nothing, which is nobody's failure
    assert planned("--only-missing", "--batch", "3") == [(date(21), date(23)), (date(24), date(24))]
    refused = tidemark(airflow, "backfill", "meters", "--resume", "--dry-run")
    assert refused.returncode == 2
    assert "expected --resume alone" in " ".join(refused.stderr.split())

    fails.unlink()
    hold = airflow.home / "hold"
    hold.touch()
    going = subprocess.Popen(
        [TIDEMARK, "backfill", "meters", "--resume"],
        env={**os.environ, **airflow.environment()},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: [stage for stage, *_ in noted(airflow, range(22, 23))] == ["land", "seal"])
    going.send_signal(signal.SIGINT)
    hold.unlink()
    _, said = going.communicate(timeout=300)
    assert going.returncode == STOPPED, said
    expect_whole_runs_in_order(airflow, range(21, 23))
    resumed = tidemark(airflow, "backfill", "meters", "--resume", "--json")
    assert [(run["slice"]["first"], run["state"]) for run in json.loads(resumed.stdout)] == [
        (date(day), "success") for day in range(21, 25)
    ]
    expect_whole_runs_in_order(airflow, range(21, 25))
    assert planned("--failed") == []


def test_a_refused_call_names_path_and_status(api: AirflowApi) -> None:
    with pytest.raises(AirflowRefused) as refusal:
        api.get("dags/no-such-dag")
    assert (refusal.value.facts["status"], refusal.value.facts["path"]) == (404, "/api/v2/dags/no-such-dag")


def test_every_port_is_on_the_loopback(airflow: Settings) -> None:
    addresses = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in processes.marked_processes(airflow.home)
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_secrets_are_private_files_and_on_no_command_line(airflow: Settings) -> None:
    files = [airflow.airflow_home / name for name in ("passwords.json", "secrets.json", "airflow.cfg")]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    assert stat.S_IMODE(airflow.airflow_home.stat().st_mode) == 0o700
    commands = [" ".join(process.cmdline()) for process in processes.marked_processes(airflow.home)]
    assert not any(admin_password(airflow) in command for command in commands)


OPEN = {
    "/api/v2/auth/login",
    "/api/v2/auth/logout",
    "/api/v2/monitor/health",
    "/api/v2/version",
    "/execution/health",
    "/execution/health/ping",
}
"""Routes that Airflow answers without a login: the health of its parts, its version, and the way to the login."""
CANARY = "what-nobody-may-read"


@pytest.mark.attack
@pytest.mark.parametrize("login", forged_logins())
def test_nobody_reads_or_changes_anything_through_airflow(airflow: Settings, api: AirflowApi, login: str) -> None:
    if login == "no login":
        api.post("variables", {"key": "probe", "value": CANARY})
        api.post("connections", {"connection_id": "probe", "conn_type": "http", "password": CANARY})
    before = records(api)
    headers = {"Content-Type": "application/json", **forged_logins()[login]}
    replies = ask_as_nobody(airflow.airflow_port, [Question(*route, headers, "{}") for route in routes()])
    assert len(replies) > 200
    answered = {reply.question.path for reply in replies if reply.status not in (401, 403)}
    assert answered <= OPEN
    assert_no_secrets(airflow, replies)
    assert records(api) == before


def records(api: AirflowApi) -> list[Any]:
    """The connections, variables, pools, pauses and runs: a stranger might change them."""
    lists = [api.get(name) for name in ("variables", "connections", "pools")]
    return [*lists, api.get("dags/probe")["is_paused"], api.get("dags/probe/dagRuns")["total_entries"]]


@pytest.mark.attack
def test_nobody_gets_a_token(airflow: Settings) -> None:
    guesses = [("admin", ""), ("admin", "admin"), ("airflow", "airflow"), ("nobody", ""), ("admin' --", "x")]
    logins = [json.dumps({"username": name, "password": password}) for name, password in guesses]
    headers = {"Content-Type": "application/json"}
    paths = ("/auth/token", "/auth/token/cli")
    questions = [Question("POST", path, headers, login) for path in paths for login in logins]
    questions += [Question("GET", path) for path in ("/auth/token", "/auth/token/login", "/auth/token/login?next=/")]
    replies = ask_as_nobody(airflow.airflow_port, questions)
    assert {reply.status for reply in replies} <= {400, 401, 403, 422}
    assert not any("_token" in reply.headers.get("set-cookie", "") for reply in replies)


OUT_OF_THE_PORTAL = (
    "../", "../api/v2/dags", "../../../../etc/passwd", "%2e%2e/", "%2e%2e/%2e%2e/airflow/secrets.json",
    "..%2f..%2fairflow%2fsecrets.json", "%252e%252e%252fairflow%252fsecrets.json", "..%5c..%5cairflow%5csecrets.json",
    "docs/../../../../airflow/secrets.json", "docs/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/airflow/secrets.json",
    "docs/..%2f..%2f..%2f..%2f..%2fairflow%2fsecrets.json", "docs//etc/passwd", "docs/%2fetc%2fpasswd",
    "sources/..%2f..%2fserver%2fconnect.token", "runs/meters/..%2f..%2f..%2fairflow%2fpasswords.json",
    "index.html%00.css", "portal.css/..%2f..%2fairflow%2fsecrets.json",
)  # fmt: skip
PORTAL_PAGES = (
    "", "index.html", "sources/meters.html", "quarantine/meters.html", "runs/meters/probe.html", "docs/index.html",
    "marts/airport_delays.html", "why/meters/hourly.html?meter=a", *OUT_OF_THE_PORTAL,
)  # fmt: skip
WRITING = ("POST", "PUT", "PATCH", "DELETE", "PROPFIND", "TRACE", "OPTIONS")


@pytest.mark.attack
@pytest.mark.parametrize("login", forged_logins())
def test_nobody_reads_or_changes_anything_through_the_portal(airflow: Settings, login: str) -> None:
    headers = forged_logins()[login]
    pages = [f"/tidemark/{page}" for page in PORTAL_PAGES]
    replies = ask_as_nobody(airflow.airflow_port, [Question("GET", page, headers) for page in pages])
    for reply in replies:
        led = reply.headers.get("location", "")
        leads_to_login = reply.status == 307 and led.startswith("/auth/login?next=%2Ftidemark") and not reply.text
        # what a path with dots names beside the portal, Airflow's own rules refuse
        assert leads_to_login or reply.status in (401, 403, 404), reply
    assert_no_secrets(airflow, replies)
    writes = [Question(method, page, headers, "{}") for method in WRITING for page in pages]
    assert {reply.status for reply in ask_as_nobody(airflow.airflow_port, writes)} <= {401, 403, 404, 405}


@pytest.mark.attack
def test_no_login_leads_out_of_the_portal_or_writes_through_it(airflow: Settings) -> None:
    login = {"username": "admin", "password": admin_password(airflow)}
    token = httpx.post(f"{airflow.airflow_url}/auth/token", json=login, trust_env=False).json()["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    pages = [f"/tidemark/{page}" for page in OUT_OF_THE_PORTAL]
    replies = ask_as_nobody(airflow.airflow_port, [Question("GET", page, headers) for page in pages])
    # any name may be a run's that left nothing, and such a run has a page, which reads no file of that name
    of_runs = [reply for reply in replies if reply.question.path.startswith("/tidemark/runs/")]
    assert {reply.status for reply in of_runs} <= {200, 404}
    assert {reply.status for reply in replies if reply not in of_runs} == {404}
    assert_no_secrets(airflow, replies)
    writes = [Question(method, page, headers, "{}") for method in WRITING for page in pages]
    # 400: a request that no page of the portal made is refused before its path is looked at
    written = ask_as_nobody(airflow.airflow_port, writes)
    assert {reply.status for reply in written} <= {400, 404, 405}
    assert {"cross_site" in reply.text for reply in written if reply.status == 400} == {True}


def assert_no_secrets(settings: Settings, replies: list[Reply]) -> None:
    """No reply has a secret of Airflow's or the lake's, a password, or a line of the system's list of users."""
    keys = json.loads((settings.airflow_home / "secrets.json").read_text()).values()
    token = (settings.server_dir / "connect.token").read_text().strip()
    secrets = [CANARY, admin_password(settings), token, *map(str, keys), "root:x:0:0"]
    assert [reply for reply in replies if any(secret in reply.text for secret in secrets)] == []


def test_a_killed_scheduler_is_restarted_without_its_old_workers(airflow: Settings) -> None:
    killed = psutil.Process(part_of(airflow, "airflow-scheduler").pid)
    workers = killed.children(recursive=True)
    assert workers
    killed.kill()
    deadline = time.monotonic() + 60
    while part_of(airflow, "airflow-scheduler").restarts == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not any(worker.is_running() for worker in workers)
    assert status(airflow, wait_s=120).ok


@pytest.mark.long
def test_a_run_goes_on_though_the_triggerer_the_api_server_and_its_task_are_killed(
    airflow: Settings, api: AirflowApi
) -> None:
    hold, day = airflow.home / "hold", range(25, 26)
    hold.touch()
    with hold_turn(airflow.home / "leases", "meters", Turn("cli-before", 0, "an earlier day"), driver=NoDriver()):
        mine = beside(lambda: backfill(airflow, api, (25, 25)))
        wait_for(lambda: "deferred" in states_of(api, "land"))
        kill_part(airflow, "airflow-triggerer")
    wait_for(lambda: [stage for stage, *_ in noted(airflow, day)] == ["land", "seal"])
    wait_for(lambda: "running" in states_of(api, "window"))
    kill_part(airflow, "airflow-api-server")
    assert status(airflow, wait_s=120).ok
    tasks = api.get("dags/meters/dagRuns/~/taskInstances", state="running", limit=1000)["task_instances"]
    assert [task["task_id"] for task in tasks] == ["window"]
    at_work = [
        process for process in processes.marked_processes(airflow.home) if tasks[0]["id"] in " ".join(process.cmdline())
    ]
    assert at_work
    for process in [child for each in at_work for child in processes.tree(each.pid)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    hold.unlink()
    assert [run.state for run in mine.result(400)] == ["success"]
    expect_whole_runs_in_order(airflow, day)


def part_of(settings: Settings, name: str) -> PartState:
    running = running_supervisor(settings)
    assert running is not None
    part = running.part(name)
    assert part is not None
    return part


def kill_part(settings: Settings, name: str) -> None:
    """Kill a part, and wait until its supervisor has started it again."""
    before = part_of(settings, name)
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    wait_for(lambda: part_of(settings, name).restarts > before.restarts)
    wait_for(lambda: part_of(settings, name).condition == "running")


@pytest.mark.turns
def test_a_run_completes_by_itself_after_all_processes_were_killed_in_its_middle(
    airflow: Settings, api: AirflowApi
) -> None:
    hold = airflow.home / "hold"
    hold.touch()
    mine = beside(lambda: backfill(airflow, api, (27, 28)))
    wait_for(lambda: [stage for stage, *_ in noted(airflow, range(27, 28))] == ["land", "seal"])
    wait_for(lambda: "running" in states_of(api, "window"))
    for process in processes.marked_processes(airflow.home):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    hold.unlink()
    assert control.up(airflow).ok
    assert [run.state for run in mine.result(300)] == ["success"]
    expect_whole_runs_in_order(airflow, range(27, 28))


def states_of(api: AirflowApi, task: str) -> set[str]:
    found = api.get("dags/meters/dagRuns/~/taskInstances", task_id=task, limit=1000)["task_instances"]
    return {each["state"] for each in found}


@pytest.mark.turns
def test_up_without_airflow_ends_it_and_keeps_the_lake_server(airflow: Settings) -> None:
    servers = {part_of(airflow, name).pid for name in ("lake", "commands", "liveness")}
    report = control.up(airflow, airflow=False)
    assert {service.name for service in report.services} == {"sql", "connect"}
    running = running_supervisor(airflow)
    assert running is not None
    assert {part.pid for part in running.parts if part.pid} == servers
    commands = [" ".join(process.cmdline()) for process in processes.marked_processes(airflow.home)]
    assert not any("airflow" in command.lower() and "spark" not in command for command in commands)
    refused = tidemark(airflow, "backfill", "meters", "--from", date(21), "--to", date(24), "--failed", "--dry-run")
    assert refused.returncode == 1
    assert "airflow_refused expected Airflow at" in " ".join(refused.stderr.split())
