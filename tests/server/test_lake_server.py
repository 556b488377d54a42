"""The real lake server: one for the whole file, started and ended as `tidemark up` and `down` do."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pyspark
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pydantic import SecretStr
from thrift.transport.TTransport import TTransportException

from spark_jobs.audit.examination import examine_lake
from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.server import control, doctor, processes
from spark_jobs.server.connect_client import connect_socket
from spark_jobs.server.errors import LakeBusy, PortTaken, ServerUnreachable
from spark_jobs.server.first_work_part import admit_readers, hold_readers
from spark_jobs.server.health import connect_health, sql_health
from spark_jobs.server.lake import lost_folders
from spark_jobs.server.lake_lock import holder
from spark_jobs.server.liveness import executes
from spark_jobs.server.logins import login
from spark_jobs.server.state import PartState, SupervisorState, running_supervisor
from spark_jobs.server.status import InstallationStatus, status
from spark_jobs.server.thrift_client import thrift_query
from spark_jobs.session import connect_version, write_properties
from tests.installations import readable_by_others, until
from tests.server.squatters import AS_NOBODY, needs_other_user

pytestmark = pytest.mark.server

CODE = ("spark_jobs.server.control.code_version", "spark_jobs.server.status.code_version")


@pytest.fixture(scope="module")
def code_stands_still() -> Iterator[pytest.MonkeyPatch]:
    """The server must not restart in the middle of this file because somebody edits the checkout."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CODE:
            patch.setattr(name, lambda: "the code of this test")
        yield patch


@pytest.fixture(scope="module")
def lake_server(
    tmp_path_factory: pytest.TempPathFactory,
    installation: Callable[[Path], Settings],
    free_ports: Callable[[int], list[int]],
    code_stands_still: pytest.MonkeyPatch,
) -> Iterator[Settings]:
    settings = installation(tmp_path_factory.mktemp("lake-server") / "home")
    settings = settings.model_copy(update={"metrics_port": free_ports(1)[0]})
    checkout_before = set(CHECKOUT.iterdir())
    before = os.umask(0)
    assert control.up(settings, airflow=False).ok
    thrift_query(settings, "CREATE TABLE default.kept USING delta AS SELECT 7 AS n", 180, role="writer")
    yield settings
    control.down(settings)
    os.umask(before)
    # in a new checkout Java writes its archive of classes first
    until(lambda: not processes.marked_processes(settings.home), 180, "processes are left")
    assert {path for path in set(CHECKOUT.iterdir()) - checkout_before if "." not in path.name[:1]} == set()


def supervisor_of(settings: Settings) -> SupervisorState:
    supervisor = running_supervisor(settings)
    assert supervisor is not None
    return supervisor


def lake_part(settings: Settings) -> PartState:
    part = supervisor_of(settings).part("lake")
    assert part is not None
    return part


def jvm(settings: Settings) -> psutil.Process:
    return psutil.Process(lake_part(settings).pid)


def client(settings: Settings, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program as another process of the same installation."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **settings.environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


CHUNKS = r"""
from spark_jobs.engine.chunks import Chunk, Row, StoreConfig
from spark_jobs.engine.spark.chunks import DeltaChunkStore
from spark_jobs.session import open_session

spark = open_session()
assert type(spark).__module__.startswith("pyspark.sql.connect")
spark.sql("CREATE DATABASE chunked")
store = DeltaChunkStore(
    spark, "chunked.chunks", timelines=("day",), components={"flow": "bigint"}, config=StoreConfig.off()
)
names = ["pump", "it's", 'a "quoted" one', "back\\slash", "two\nlines", "ütz 🌊", ":entity", "--", ""]
store.insert_all(
    Chunk.from_rows(f"c{n}", name, [Row(10 * n + k, {"day": k - 2**63 * (k == 1)}, {"flow": n}) for k in range(1, 4)])
    for n, name in enumerate(names)
)
for n, name in enumerate(names):
    assert store.range_query(name, "day", -(2**63), 2**63 - 1, ["flow"])["flow"].to_pylist() == [n] * 3, name
    assert store.range_query(name, "day", 2, 2, ["flow"])["row_id"].to_pylist() == [10 * n + 2], name
    latest = store.latest_at(name, "day", 2**63 - 1, ["flow"])["flow"]
    assert (latest.time, latest.value) == (3, n), name
spark.sql("DROP DATABASE chunked CASCADE")
"""


@pytest.mark.turns
def test_chunks_are_asked_over_connect_whatever_their_entity_is_called(lake_server: Settings) -> None:
    asked = client(lake_server, CHUNKS)
    assert asked.returncode == 0, asked.stderr[-2000:]


IN_WORKERS = """
from spark_jobs.session import open_session

spark = open_session()
rows = spark.range(40).repartition(4).mapInArrow(lambda batches: batches, "id BIGINT").count()
assert rows == 40, rows
spark.stop()
"""


@pytest.mark.turns
def test_a_job_outlives_the_death_of_all_python_workers_before_it(lake_server: Settings) -> None:
    first = client(lake_server, IN_WORKERS)
    assert first.returncode == 0, first.stderr[-2000:]
    workers = [each for each in jvm(lake_server).children(recursive=True) if "python" in each.name()]
    assert len(workers) > 1, "the daemon, and idle workers"
    for worker in workers:
        worker.kill()
    again = client(lake_server, IN_WORKERS)
    assert again.returncode == 0, again.stderr[-2000:]


SLOW_RELEASES = """
import time
from spark_jobs.session import open_session

spark = open_session()
# the session would end long before the release is asked for
release = spark.client._stub.ReleaseExecute

def release_slowly(*args, **kwargs):
    time.sleep(0.5)
    return release(*args, **kwargs)

spark.client._stub.ReleaseExecute = release_slowly
assert spark.range(40).count() == 40
spark.stop()
"""


def test_a_session_that_ends_after_its_work_leaves_no_error_in_a_log(lake_server: Settings) -> None:
    log = lake_server.logs_dir / "lake.log"
    before = log.stat().st_size
    worked = client(lake_server, SLOW_RELEASES)
    assert worked.returncode == 0, worked.stderr[-2000:]
    with log.open("rb") as file:
        file.seek(before)
        lines = [*file.read().decode().splitlines(), *worked.stderr.splitlines()]
    assert [line for line in lines if "releaseexecute" in line.lower() or "SESSION_" in line] == []


def test_a_connection_to_the_socket_leaves_no_warning_of_netty(lake_server: Settings) -> None:
    """The tests before have connected, too."""
    worked = client(
        lake_server, "from spark_jobs.session import open_session; assert open_session().range(4).count() == 4"
    )
    assert worked.returncode == 0, worked.stderr[-2000:]
    assert "ServerBootstrap" not in (lake_server.logs_dir / "lake.log").read_text()


def test_the_log_of_the_probe_says_when_the_server_first_answered(lake_server: Settings) -> None:
    log = lake_server.logs_dir / "liveness.log"
    while "the server gave its first answer after" not in log.read_text():
        time.sleep(0.5)
    assert "Could not connect" not in log.read_text().partition("the server gave its first answer")[0]


def test_a_table_written_through_connect_is_read_through_sql(lake_server: Settings) -> None:
    written = client(
        lake_server,
        "from spark_jobs.session import open_session\n"
        "spark = open_session()\n"
        "spark.sql('CREATE DATABASE IF NOT EXISTS shared')\n"
        "spark.sql('CREATE OR REPLACE TABLE shared.t USING delta AS SELECT id FROM range(5)')\n"
        "spark.stop()\n",
    )
    assert written.returncode == 0, written.stderr
    assert thrift_query(lake_server, "SELECT count(*), sum(id) FROM shared.t", role="writer") == [(5, 10)]


def test_beeline_reads_through_jdbc(lake_server: Settings) -> None:
    beeline = Path(pyspark.__file__).parent / "bin" / "beeline"
    user = login(lake_server, "reader")
    answer = subprocess.run(
        [
            *(beeline, "-u", lake_server.jdbc_url, "-n", user.user, "-p", user.password),
            *("--silent=true", "--outputformat=csv2", "-e", "SELECT 40 + 2 AS answer"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "answer\n42" in answer.stdout, answer.stderr


def test_statements_of_sql_clients_do_not_see_the_servers_environment(lake_server: Settings) -> None:
    assert thrift_query(lake_server, "SELECT '${env:PATH}', '${system:user.home}'") == [
        ("${env:PATH}", "${system:user.home}")
    ]


def test_the_session_time_zone_is_utc_for_sql_clients_too(lake_server: Settings) -> None:
    assert thrift_query(lake_server, "SELECT current_timezone()") == [("UTC",)]


@pytest.mark.parametrize("token", ["wrong", ""])
def test_spark_connect_refuses_a_client_without_the_token(lake_server: Settings, token: str) -> None:
    with pytest.raises(ServerUnreachable) as refusal:
        connect_version(lake_server.model_copy(update={"token": SecretStr(token)}))
    assert "token" in refusal.value.found.lower()


def test_every_port_is_on_the_loopback(lake_server: Settings) -> None:
    supervisor = supervisor_of(lake_server)
    addresses = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in processes.tree(supervisor.pid)
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_figures_of_the_parts_are_served(lake_server: Settings) -> None:
    def parts_up() -> dict[str, float]:
        try:
            answer = httpx.get(f"http://localhost:{lake_server.metrics_port}/metrics", trust_env=False, timeout=60)
        except httpx.ConnectError:
            return {}
        families = text_string_to_metric_families(answer.text)
        return {s.labels["part"]: s.value for f in families if f.name == "tidemark_part_up" for s in f.samples}

    until(lambda: parts_up().items() >= {"lake": 1, "metrics": 1}.items(), 120, "the figures are not served")


def test_the_token_is_on_no_command_line_and_in_private_files_only(lake_server: Settings) -> None:
    token = lake_server.connect_token()
    assert token
    commands = [" ".join(process.cmdline()) for process in processes.marked_processes(lake_server.home)]
    assert commands
    assert not any(token in command for command in commands)
    holders = [file for file in lake_server.home.rglob("*") if file.is_file() and token.encode() in file.read_bytes()]
    assert {file.name for file in holders} == {"connect.token", "server.conf"}
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in holders)
    assert stat.S_IMODE(connect_socket(lake_server).parent.stat().st_mode) == 0o700


@needs_other_user
def test_another_user_stops_no_executor_through_sparks_own_ports(lake_server: Settings) -> None:
    assert thrift_query(lake_server, "SELECT sum(id) FROM range(10)", role="writer") == [(45,)]
    assert executes(jvm(lake_server).pid), "its threads have the name that the probe of its life looks for"
    listening = {each.laddr.port for each in jvm(lake_server).net_connections("tcp") if each.status == "LISTEN"}
    ports = listening - {lake_server.thrift_port, lake_server.connect_port}
    assert ports, "of the driver, and of its blocks"
    attack = [*AS_NOBODY, sys.executable, str(Path(__file__).with_name("stop_executor.py")), *map(str, ports)]
    environment = {"PATH": os.environ["PATH"], "HOME": "/tmp", "SPARK_LOCAL_IP": "127.0.0.1"}
    answer = subprocess.run(attack, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=300)
    said = answer.stdout.splitlines()
    assert len(said) == len(ports), answer.stderr[-2000:]
    assert "stopped" not in said
    assert thrift_query(lake_server, "SELECT sum(id) FROM range(10)", role="writer") == [(45,)]


def test_what_is_written_is_for_its_user_alone_whatever_the_umask(lake_server: Settings) -> None:
    statement = "CREATE OR REPLACE TABLE default.private USING DELTA AS SELECT id FROM range(10)"
    assert client(lake_server, f"from spark_jobs.session import open_session; open_session().sql({statement!r})")
    assert list(lake_server.home.glob("lake/**/private/*.parquet"))
    assert readable_by_others(lake_server.home) == []


def test_up_again_changes_nothing(lake_server: Settings) -> None:
    before = jvm(lake_server).pid
    assert control.up(lake_server, airflow=False).ok
    assert jvm(lake_server).pid == before


def test_another_installation_on_the_same_lake_is_refused_and_told_who_holds_it(
    lake_server: Settings, installation: Callable[[Path], Settings], tmp_path: Path
) -> None:
    other = installation(tmp_path / "other").model_copy(update={"lake": lake_server.lake})
    with pytest.raises(LakeBusy) as refusal:
        control.up(other, airflow=False)
    assert refusal.value.facts["pid"] == jvm(lake_server).pid
    assert str(lake_server.home) in refusal.value.facts["command"]
    assert running_supervisor(other) is None


def test_a_job_through_spark_submit_is_refused_while_the_lake_server_runs(
    lake_server: Settings, tmp_path: Path
) -> None:
    job = tmp_path / "job.py"
    job.write_text("from spark_jobs.session import open_session\nopen_session().sql('CREATE DATABASE intruder')\n")
    answer = subprocess.run(
        [
            Path(pyspark.__file__).parent / "bin" / "spark-submit",
            *("--properties-file", write_properties(lake_server), job),
        ],
        env={**os.environ, **lake_server.environment(), "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert answer.returncode != 0
    assert "lake_busy" in answer.stdout
    assert f"process {jvm(lake_server).pid} " in answer.stdout
    assert ("intruder",) not in thrift_query(lake_server, "SHOW DATABASES")


def test_a_taken_port_is_refused_with_its_owner_before_anything_starts(
    installation: Callable[[Path], Settings], tmp_path: Path
) -> None:
    settings = installation(tmp_path / "home")
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", settings.connect_port))
        squatter.listen()
        with pytest.raises(PortTaken) as refusal:
            control.up(settings, airflow=False)
    assert refusal.value.facts["pid"] == os.getpid()
    assert running_supervisor(settings) is None
    assert processes.marked_processes(settings.home) == []


def test_a_job_fails_at_once_where_no_server_runs(
    installation: Callable[[Path], Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = installation(tmp_path / "home")
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    # a client tries again and again; none is made where nothing listens
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.client", None)
    with pytest.raises(ServerUnreachable, match="tidemark up"):
        connect_version(settings)
    assert waits == []


def test_the_doctor_finds_nothing_wrong(lake_server: Settings) -> None:
    findings = [*doctor.examine(lake_server), *examine_lake(lake_server, deep=True)]
    assert [finding for finding in findings if finding.verdict == "wrong"] == []


def test_scratch_folders_are_looked_for_where_spark_has_them(
    lake_server: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "fast", tmp_path / "large"
    (first / "blockmgr-1").mkdir(parents=True)
    elsewhere = lake_server.model_copy(update={"spark_conf": {"spark.local.dir": f"{first},{second}"}})
    assert lost_folders(elsewhere) == [second]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(first))
    assert lost_folders(elsewhere) == []


def test_the_status_says_why_readers_wait(lake_server: Settings) -> None:
    hold_readers(lake_server)
    try:
        health = sql_health(lake_server)
        with pytest.raises(TTransportException, match="time"):
            thrift_query(lake_server, "SELECT 1", timeout_s=2)
    finally:
        admit_readers(lake_server)
    wanted = "answers writers; readers wait until the names of a lost catalog are made anew"
    assert (health.ok, health.detail) == (False, wanted)
    assert sql_health(lake_server).ok


@pytest.mark.turns
def test_a_killed_server_comes_back_with_its_tables(lake_server: Settings) -> None:
    killed = jvm(lake_server)
    killed.kill()
    killed.wait(10)
    assert holder(lake_server) is not None, "the supervisor lets nobody in between two lives of the server"
    assert recovered(lake_server).ok
    assert jvm(lake_server).pid != killed.pid
    # the first query of a new JVM, beside other tests
    assert thrift_query(lake_server, "SELECT n FROM default.kept", 180, role="writer") == [(7,)]


@pytest.mark.turns
def test_a_server_whose_folders_were_removed_is_started_anew(lake_server: Settings) -> None:
    before = jvm(lake_server)
    supervisor = psutil.Process(supervisor_of(lake_server).pid)
    assert lost_folders(lake_server) == []
    # what the catalog alone knows is lost with it: it comes back for the tests that follow
    catalog, aside = lake_server.home / "metastore", lake_server.home / "aside"
    catalog.rename(aside)
    assert lost_folders(lake_server) == [catalog]
    aside.rename(catalog)
    supervisor.suspend()
    try:
        # the server may write into it meanwhile: moving it takes all of it at once
        (lake_server.home / "tmp").rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
        wrong = [finding for finding in doctor.examine(lake_server) if finding.verdict == "wrong"]
        assert f"{lake_server.home / 'tmp'} was removed while it runs" in [finding.found for finding in wrong]
    finally:
        supervisor.resume()
    # beside other work a server may take more than a minute to end in order: it writes the archive of its classes
    until(lambda: not before.is_running(), timeout_s=180)
    assert status(lake_server, wait_s=180).ok, "nobody has to call `up`"
    assert lost_folders(lake_server) == []
    assert thrift_query(lake_server, "SELECT count(*) FROM range(3) GROUP BY id % 2 ORDER BY 1") == [(1,), (2,)]


def recovered(settings: Settings) -> InstallationStatus:
    """The status once the supervisor has noticed the end of a part and the new one answers."""
    until(lambda: lake_part(settings).restarts > 0, 30, "nothing was restarted")
    return status(settings, wait_s=180)


@pytest.mark.turns
def test_changed_code_restarts_the_server(lake_server: Settings, code_stands_still: pytest.MonkeyPatch) -> None:
    before = jvm(lake_server)
    with pytest.MonkeyPatch.context() as edited:
        for name in CODE:
            edited.setattr(name, lambda: "edited code")
        assert status(lake_server).stale
        assert not status(lake_server).ok
        after = control.up(lake_server, airflow=False)
        assert after.ok
        assert jvm(lake_server).pid != before.pid


def test_a_killed_supervisor_leaves_no_process_and_down_says_so(
    lake_server: Settings, code_stands_still: pytest.MonkeyPatch
) -> None:
    server = jvm(lake_server)
    os.kill(supervisor_of(lake_server).pid, signal.SIGKILL)
    server.wait(60)
    report = status(lake_server)
    assert report.supervisor is None
    assert not report.ok
    assert not control.down(lake_server).ran
    assert processes.marked_processes(lake_server.home) == []
    assert holder(lake_server) is None
    assert not sql_health(lake_server).ok
    assert not connect_health(lake_server).ok


@pytest.mark.turns
def test_in_the_foreground_it_serves_until_told_to_end(lake_server: Settings) -> None:
    # the test before this one ends the server, but a slice of tests in turns leaves that one out
    control.down(lake_server)
    serving = subprocess.Popen(
        [sys.executable, "-c", "from spark_jobs.cli import main; main()", "up", "--no-airflow", "--foreground"],
        env={**os.environ, **lake_server.environment()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + lake_server.startup_timeout_s
        while not sql_health(lake_server).ok:
            assert serving.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert supervisor_of(lake_server).pid == serving.pid
        assert thrift_query(lake_server, "SELECT n FROM default.kept", 180, role="writer") == [(7,)]
        serving.terminate()
        assert serving.wait(60) == 0
        assert processes.marked_processes(lake_server.home) == []
    finally:
        serving.kill()
        serving.wait()
