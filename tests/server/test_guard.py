"""What logins may do through SQL over JDBC: every attack is refused, and a reader's work is not."""

from __future__ import annotations

import os
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import thrift_sasl
from pydantic import SecretStr
from pyhive import hive
from pyspark.errors import PySparkException
from TCLIService.ttypes import TFetchResultsReq, TOperationState
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TTransportException

from spark_jobs.config import Settings
from spark_jobs.server import processes
from spark_jobs.server.errors import ServerUnreachable
from spark_jobs.server.health import sql_health
from spark_jobs.server.logins import Login, login
from spark_jobs.server.thrift_client import thrift_connection
from spark_jobs.session import open_session
from tests.installations import until
from tests.server.attacks import ATTACKS, ENDLESS, HUNGRY, LARGE, RESOLVED_FOR_LONG, WRITERS
from tests.server.clients import FOR_LONG, Ask, asking, reader_at_work, reader_connection, run_at_work
from tests.server.conftest import LIMITS
from tests.server.questions import QUERIES

pytestmark = pytest.mark.server

IS_STOPPED = " of a reader's statement whose time was over is stopped"


def refusal(ask: Ask, statement: str) -> str:
    with pytest.raises(hive.OperationalError) as refused:
        ask(statement)
    return str(refused.value.args[0].status.errorMessage)


def test_the_lake_is_as_the_attacks_need_it(writer: Ask) -> None:
    assert writer("SELECT count(*) FROM trace.published") == [(5,)]


@pytest.mark.attack
@pytest.mark.parametrize("name", ATTACKS)
def test_a_reader_is_refused(reader: Ask, places: dict[str, Any], name: str) -> None:
    assert "not_allowed" in refusal(reader, ATTACKS[name].format(**places, role="reader"))


OF_ANYBODY = [name for name in ATTACKS if name.startswith(("code", "files", "network", "server"))]


WRITERS_OWN = ("server: a database", "server: use the records")


@pytest.mark.attack
@pytest.mark.parametrize("name", [name for name in OF_ANYBODY if name not in WRITERS_OWN])
def test_a_writer_is_refused(writer: Ask, places: dict[str, Any], name: str) -> None:
    assert "not_allowed" in refusal(writer, ATTACKS[name].format(**places, role="writer"))


@pytest.mark.attack
@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_is_refused_more(writer: Ask, places: dict[str, Any], name: str) -> None:
    assert "not_allowed" in refusal(writer, WRITERS[name].format(**places))


@pytest.mark.attack
@pytest.mark.parametrize("name", LARGE)
def test_what_becomes_large_is_refused_before_it_is_resolved(reader: Ask, writer: Ask, name: str) -> None:
    for role, ask in (("reader", reader), ("writer", writer)):
        assert "limit_size" in refusal(ask, LARGE[name].replace("{role}", role))


@pytest.mark.attack
def test_the_attacks_changed_nothing(
    served: Settings, writer: Ask, places: dict[str, Any], listener: socket.socket
) -> None:
    assert not places["out"].exists()
    assert writer("SELECT count(*) FROM trace.published") == [(5,)]
    assert writer("SELECT count(*), max(id) FROM silver.facts") == [(10, 9)]
    assert writer("SELECT count(*) FROM silver.shown") == [(5,)]
    assert not (Path(served.lake) / "scratch_reader.db").exists()  # made with the first table
    assert [table.name for table in (Path(served.lake) / "scratch_writer.db").iterdir()] == ["theirs"]
    with pytest.raises(TimeoutError):
        listener.accept()


@pytest.mark.parametrize("statement", QUERIES)
def test_a_reader_reads(reader: Ask, statement: str) -> None:
    assert reader(statement) == QUERIES[statement]


@pytest.mark.parametrize(
    "statement",
    [
        "SHOW DATABASES",
        "SHOW COLUMNS IN silver.facts",
        "DESCRIBE EXTENDED silver.shown",
        "SHOW FUNCTIONS LIKE 'abs'",
        "DESCRIBE FUNCTION abs",
        "DESCRIBE QUERY SELECT * FROM silver.shown",
        "USE silver",
    ],
)
def test_a_reader_looks_around(reader: Ask, statement: str) -> None:
    reader(statement)


def test_a_reader_has_a_scratch_database(reader: Ask) -> None:
    reader("CREATE TABLE scratch_reader.kept AS SELECT id FROM silver.shown WHERE id > 2")
    reader("INSERT INTO scratch_reader.kept WITH more AS (SELECT 9 AS id) SELECT id FROM more")
    reader("CREATE OR REPLACE TABLE scratch_reader.made (a INT) USING delta")
    assert reader("SELECT count(*), max(id) FROM scratch_reader.kept") == [(3, 9)]
    reader("DROP TABLE scratch_reader.kept")
    reader("DROP TABLE scratch_reader.made")


def test_a_writer_writes_beside_what_runs_publish(writer: Ask) -> None:
    properties = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"
    writer(f"CREATE OR REPLACE TABLE marts_staging.mine (a INT COMMENT 'it') USING delta COMMENT 'x' {properties}")
    writer("INSERT OVERWRITE marts_staging.mine SELECT 1")
    writer("MERGE INTO marts_staging.mine t USING (SELECT 2 AS a) s ON t.a = s.a WHEN NOT MATCHED THEN INSERT *")
    writer("UPDATE marts_staging.mine SET a = 3 WHERE a = 2")
    writer("CREATE VIEW marts_staging.over AS SELECT * FROM marts_staging.mine")
    assert writer("SELECT sum(a) FROM marts_staging.over") == [(4,)]
    assert writer("DESCRIBE HISTORY marts_staging.mine")
    writer("DROP VIEW marts_staging.over")
    writer("DROP TABLE marts_staging.mine")
    for database in ("trace.published", "silver.facts", "dev__silver.facts"):
        assert "not_allowed" in refusal(writer, f"INSERT INTO {database} SELECT 1")
    # what people see of a mart has passed its tests
    assert "not_allowed" in refusal(writer, "CREATE OR REPLACE VIEW marts.mine AS SELECT 1 AS a")


@pytest.mark.parametrize(("user", "password"), [("reader", "none"), ("nobody", "x"), ("writer", ""), ("#", "Logins")])
def test_without_the_password_there_is_no_session(served: Settings, user: str, password: str) -> None:
    with pytest.raises(Exception, match=r"[Aa]uth|login|empty|name provided|Error validating|Bad status"):
        thrift_connection(served, Login(user, password), timeout_s=20)


def test_passwords_are_in_their_file_alone(served: Settings) -> None:
    passwords = [login(served, role).password.encode() for role in ("reader", "writer")]
    holders = [
        file.name
        for file in served.home.rglob("*")
        if file.is_file() and any(password in file.read_bytes() for password in passwords)
    ]
    assert holders == ["jdbc.logins"]
    commands = [" ".join(process.cmdline()).encode() for process in processes.marked_processes(served.home)]
    assert not any(password in command for command in commands for password in passwords)


def test_a_reader_is_no_writer_by_asking_for_it(served: Settings) -> None:
    """SASL knows a second name, whom to act as, and a session's opening names a third."""
    mine = login(served, "reader")

    def sasl() -> Any:
        client = hive.get_installed_sasl(
            host="localhost", sasl_auth="PLAIN", username=mine.user, password=mine.password
        )
        start, forged = client.start, f"writer\0{mine.user}\0{mine.password}".encode()
        client.start = lambda mechanism: (*start(mechanism)[:2], forged)
        return client

    channel = TSocket(served.server_host, served.thrift_port)
    transport = thrift_sasl.TSaslClientTransport(sasl, "PLAIN", channel)
    connection = hive.Connection(thrift_transport=transport, username="writer")
    try:
        with pytest.raises(hive.OperationalError, match="not_allowed"):
            connection.cursor().execute("CREATE TABLE marts_staging.mine USING delta AS SELECT 1 AS a")
    finally:
        connection.close()


@pytest.mark.parametrize(
    "wish",
    [
        {"spark.sql.runSQLOnFiles": "true"},
        {"set:hiveconf:spark.sql.runSQLOnFiles": "true"},
        {"set:system:user.name": "writer"},
        {"set:hivevar:spark.sql.extensions": "x"},
        {"hive.server2.proxy.user": "writer"},
        {"spark.sql.thriftserver.scheduler.pool": "default"},
        {"spark.sql.shuffle.partitions": "100000000"},
    ],
)
def test_a_connection_brings_no_settings_of_the_server(served: Settings, wish: dict[str, str]) -> None:
    with pytest.raises(Exception, match=r"not_allowed|not allowed|Failed to validate proxy"):
        thrift_connection(served, login(served, "reader"), configuration=wish)


def test_a_connection_may_name_its_database_and_harmless_settings(served: Settings) -> None:
    connection = thrift_connection(
        served, login(served, "reader"), database="silver", configuration={"spark.sql.shuffle.partitions": "2"}
    )
    cursor = connection.cursor()
    cursor.execute("SELECT count(*) FROM facts")
    assert cursor.fetchall() == [(10,)]
    connection.close()
    with pytest.raises(Exception, match="not_allowed"):
        thrift_connection(served, login(served, "reader"), database="trace")


def test_settings_of_one_session_are_not_those_of_another(served: Settings, reader: Ask) -> None:
    reader("SET spark.sql.session.timeZone=Asia/Tokyo")
    with asking(served, "reader") as other:
        assert other("SELECT current_timezone()") == [("UTC",)]
    reader("SET spark.sql.session.timeZone=UTC")


def test_readers_have_no_spark_connect(served: Settings) -> None:
    """Its one token is the pipeline's; a reader's password is not a token."""
    guess = served.model_copy(update={"spark": "connect", "token": SecretStr(login(served, "reader").password)})
    with pytest.raises((ServerUnreachable, PySparkException)):
        open_session(guess)


def test_too_many_rows_end_with_the_limits_name(reader: Ask) -> None:
    assert len(reader("SELECT id FROM range(1000)")) == 1000
    told = refusal(reader, "SELECT id FROM range(1001)")
    assert "limit_rows" in told
    assert "TIDEMARK_READER_ROWS" in told


def test_too_many_bytes_end_with_the_limits_name(reader: Ask) -> None:
    told = refusal(reader, "SELECT repeat('x', 100000) FROM range(5)")
    assert "limit_bytes" in told
    assert "TIDEMARK_READER_BYTES" in told


@pytest.mark.turns
def test_a_statement_that_takes_too_long_ends_with_the_limits_name(served: Settings, reader: Ask) -> None:
    told = refusal(reader, FOR_LONG)
    assert "limit_seconds" in told
    assert "TIDEMARK_READER_SECONDS" in told
    assert reader("SELECT 1") == [(1,)]


@pytest.mark.attack
@pytest.mark.turns
def test_what_computes_for_ever_on_a_row_is_stopped(served: Settings, reader: Ask) -> None:
    """Nothing in it looks whether it was cancelled: it had a core until the server ended."""
    log = served.logs_dir / "lake.log"
    for statement in ENDLESS.values():
        before = log.read_text().count(IS_STOPPED)
        assert "limit_seconds" in refusal(reader, statement)
        while log.read_text().count(IS_STOPPED) == before:
            time.sleep(0.2)
    assert reader("SELECT count(*) FROM silver.facts") == [(10,)]


@pytest.mark.attack
@pytest.mark.turns
def test_what_is_resolved_for_long_ends_between_two_rounds(served: Settings, reader: Ask) -> None:
    """No thread is stopped for it: Spark's rules look at the statement's end themselves."""
    before = (served.logs_dir / "lake.log").read_text().count(IS_STOPPED)
    assert "limit_seconds" in refusal(reader, RESOLVED_FOR_LONG)
    assert (served.logs_dir / "lake.log").read_text().count(IS_STOPPED) == before
    assert reader("SELECT 1") == [(1,)]


@pytest.mark.attack
@pytest.mark.turns
def test_what_fills_the_heap_ends_and_leaves_the_server(served: Settings, writer: Ask) -> None:
    with asking(served, "reader") as hungry:
        for name, statement in HUNGRY.items():
            message = refusal(hungry, statement)
            while name == "a list" and "limit_seconds" in message:  # a busy machine had no time to fill the heap
                wait_for_room(hungry)
                message = refusal(hungry, statement)
            assert "limit_heap" in message or name != "a list"  # Java itself refuses what is allocated in one piece
            assert writer("SELECT count(*) FROM silver.facts") == [(10,)]
            wait_for_room(hungry)
    assert (served.logs_dir / "supervisor.log").read_text().count('"part": "lake"') == 1  # its start


def wait_for_room(ask: Ask) -> None:
    """Wait until statements begin again after the heap was full."""
    while True:
        try:
            ask("SELECT 1")
            return
        except hive.OperationalError as refused:
            assert "limit_heap" in refused.args[0].status.errorMessage
            time.sleep(0.5)


def test_a_user_has_so_many_statements_at_a_time(served: Settings) -> None:
    connections = [thrift_connection(served, login(served, "reader")) for _ in range(3)]
    cursors = [connection.cursor() for connection in connections]
    for cursor in cursors[:2]:
        cursor.execute("SELECT id FROM range(5)")
    with pytest.raises(hive.OperationalError, match="limit_statements"):
        cursors[2].execute("SELECT 1")
    cursors[0].close()
    cursors[2].execute("SELECT 1")
    assert cursors[2].fetchall() == [(1,)]
    for connection in connections:
        connection.close()


@pytest.mark.turns
def test_many_sessions_end_at_once(served: Settings) -> None:
    """Hive closed the metastore's client that all share: of forty such ends, one broke off or waited for ever."""
    for _ in range(10):
        connections = [thrift_connection(served, login(served, "reader"), timeout_s=20) for _ in range(40)]
        with ThreadPoolExecutor(len(connections)) as pool:
            for ended in [pool.submit(connection.close) for connection in connections]:
                ended.result()


def test_a_user_has_so_many_sessions_at_a_time(served: Settings, reader: Ask) -> None:
    with ExitStack() as open_ones, pytest.raises(hive.OperationalError) as refused:
        for _ in range(LIMITS["reader_sessions"] + 1):
            open_ones.enter_context(closing(thrift_connection(served, login(served, "reader"))))
    told = refused.value.args[0].status.errorMessage
    assert "limit_sessions: expected at most 50 sessions" in told
    assert "TIDEMARK_READER_SESSIONS" in told
    with ExitStack() as open_ones:
        for _ in range(LIMITS["reader_sessions"] - 1):
            open_ones.enter_context(closing(thrift_connection(served, login(served, "reader"))))
        with pytest.raises(hive.OperationalError, match="limit_sessions"):
            thrift_connection(served, login(served, "reader"))
        assert sql_health(served).ok
    assert reader("SELECT 1") == [(1,)]


@pytest.mark.turns
def test_connections_without_a_session_keep_nobody_out(served: Settings, writer: Ask) -> None:
    """Each has a thread of the server: whoever opened enough of them locked out everybody, without a password."""
    with ExitStack() as open_ones:
        silent = [
            open_ones.enter_context(socket.create_connection((served.server_host, served.thrift_port), 60))
            for _ in range(102)
        ]
        assert [one.recv(1) for one in silent[:2]] == [b"", b""], "the oldest"
        assert select.select(silent[50:], [], [], 0)[0] == [], "not for their silence, which would end the others, too"
        assert sql_health(served).ok
        assert writer("SELECT 1") == [(1,)]
        assert silent[-1].recv(1) == b""  # for its silence


def test_the_log_names_who_was_refused(served: Settings) -> None:
    file, refusal = served.logs_dir / "lake.log", " a login as some?body from 127.0.0.1 was refused"

    def is_named() -> bool:
        with pytest.raises(TTransportException):
            thrift_connection(served, Login("some\nbody", "x"))
        return refusal in file.read_text()

    # the log has at most one line of refusals a second
    until(is_named)
    assert "SASL negotiation failure" not in file.read_text()


def test_readers_are_answered_beside_a_run_that_works(served: Settings, reader: Ask) -> None:
    """They share one seat then, and a statement that takes long does not keep it."""
    with run_at_work(served), reader_at_work(served):
        for n in range(5):
            assert reader(f"SELECT {n}") == [(n,)]
    assert reader("SELECT 7") == [(7,)]


@pytest.mark.turns
def test_statements_given_up_while_they_wait_take_no_seats_along(served: Settings, reader: Ask) -> None:
    """More of them than there are seats: without these nobody is answered."""
    seats, given_up = max(2, os.cpu_count() or 1), 0
    with run_at_work(served), reader_connection(served) as waiting:
        while given_up <= seats:
            with reader_at_work(served):
                cursor = waiting.cursor()
                cursor.execute("SELECT 1", async_=True)
                assert "limit_statements" in refusal(reader, "SELECT 0")  # the one that waits is the second
                cursor.cancel()
                # one that was answered had a seat: it came before the other, or the other's time had ended
                given_up += cursor.poll().operationState == TOperationState.CANCELED_STATE
                cursor.close()
        for n in range(5):
            assert reader(f"SELECT {n}") == [(n,)]


def test_a_second_call_on_a_statement_waits_for_the_first(served: Settings) -> None:
    """It worked without a seat as long as the first waited for one, and took its row, each time.

    A busy machine may also turn the two calls round; it does not do so three times in a row.
    """
    assert [[0], [1]] in (rows_of_two_calls(served) for _ in range(3))


def rows_of_two_calls(served: Settings) -> list[list[int]]:
    """The rows that two calls get from one statement: of the first, and of one half a second after it."""
    with reader_connection(served) as first, reader_connection(served) as second:
        cursor = first.cursor()
        cursor.execute("SELECT id FROM range(2)")
        fetch = TFetchResultsReq(operationHandle=cursor._operationHandle, orientation=0, maxRows=1)
        with run_at_work(served), reader_at_work(served):
            time.sleep(0.5)
            first.client.send_FetchResults(fetch)
            time.sleep(0.5)
            second.client.send_FetchResults(fetch)
            answers = [connection.client.recv_FetchResults() for connection in (first, second)]
        cursor.close()
    rows = [answer.results.columns[0].i64Val.values for answer in answers]
    assert sorted(rows) == [[0], [1]], "a row is doubled or lost"
    return rows


def test_a_statement_whose_client_is_gone_is_cancelled(served: Settings) -> None:
    """The two slots of a user are free again before their statements' time is over."""
    for _ in range(2):
        connection = thrift_connection(served, login(served, "reader"))
        connection.cursor().execute(FOR_LONG, async_=True)
        connection._transport.close()
    begun = time.monotonic()
    while time.monotonic() < begun + LIMITS["reader_seconds"] - 5:
        connection = thrift_connection(served, login(served, "reader"))
        try:
            connection.cursor().execute("SELECT 1")
            return
        except hive.OperationalError:
            time.sleep(0.5)
        finally:
            connection.close()
    pytest.fail("the statements of clients that are gone still count")
