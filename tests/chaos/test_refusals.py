"""What a reader was told in place of rows: no answer while a server is down, a broken promise from one that is there.

The texts are what clients were told by a lake server that was asked for what it has not, and was killed, and was ended,
while they asked; that of a full disk is made up.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.server.logins import ensure_logins
from spark_jobs.server.thrift_client import thrift_query
from tests.chaos.account import Fault
from tests.chaos.campaign import Campaign, Plan
from tests.chaos.refusals import Refusal
from tests.installations import free_port

_STATUS = "(status=TStatus(statusCode=3, infoMessages=["
_RUNNING = f'TExecuteStatementResp{_STATUS}"*org.apache.hive.service.cli.HiveSQLException:Error running query: '
NO_VIEW = (
    f"{_RUNNING}[TABLE_OR_VIEW_NOT_FOUND] org.apache.spark.sql.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] The table"
    " or view `default`.`departure_delays` cannot be found. Verify the spelling and correctness of the schema."
)
NO_COLUMN = (
    f"{_RUNNING}[UNRESOLVED_COLUMN.WITH_SUGGESTION] org.apache.spark.sql.AnalysisException: [UNRESOLVED_COLUMN."
    "WITH_SUGGESTION] A column, variable, or function parameter with name `nothing` cannot be resolved."
)
NO_DATABASE = (
    f"{_RUNNING}not_allowed: expected a statement that the role reader may run, found the name silver.nothing, of which"
    " the first part is no database; nothing was run."
)
NO_ROOM = f"{_RUNNING}org.apache.spark.SparkException: java.io.IOException: No space left on device"
STOPPED = (
    f"TExecuteStatementResp{_STATUS}'*java.lang.IllegalStateException:Cannot call methods on a stopped SparkContext."
    "\\nThis stopped SparkContext was created at:\\n\\norg.apache.spark.sql.hive.thriftserver.tidemark.LakeServer.main"
)
INTERRUPTED = (
    f"TFetchResultsResp{_STATUS}'*java.lang.InterruptedException:null:52:51', 'java.util.concurrent.locks."
    "AbstractQueuedSynchronizer:acquireSharedInterruptibly:AbstractQueuedSynchronizer.java:1048'"
)
KILLED = "TSocket read 0 bytes"
NOT_THERE = "Could not connect to any of [('127.0.0.1', 48493)]"

Treatment = Callable[[socket.socket], None]


def close(client: socket.socket) -> None:
    client.close()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def keep_silent(client: socket.socket) -> None:
    client.recv(1 << 16)


@contextmanager
def server(treat: Treatment) -> Iterator[int]:
    """The port of a server that treats its one client so."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept = []

        def serve() -> None:
            kept.append(listening.accept()[0])
            treat(kept[0])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join()
            kept[0].close()


def told(settings: Settings, port: int) -> str:
    """What a reader is told at a port."""
    settings = settings.model_copy(update={"thrift_port": port, "server_host": "127.0.0.1"})
    ensure_logins(settings)
    with pytest.raises(Exception) as failure:
        thrift_query(settings, "SELECT 1", timeout_s=0.5)
    return str(failure.value)


@pytest.mark.parametrize("treat", [close, reset, keep_silent])
def test_a_connection_that_ends_is_no_answer(settings: Settings, treat: Treatment) -> None:
    with server(treat) as port:
        message = told(settings, port)
    assert Refusal(message, 0, 1).no_answer, message


def test_a_port_where_nobody_listens_is_no_answer(settings: Settings) -> None:
    message = told(settings, free_port())
    assert Refusal(message, 0, 1).no_answer, message


@pytest.mark.parametrize("message", [STOPPED, INTERRUPTED, KILLED, NOT_THERE])
def test_what_a_server_says_that_ends_is_no_answer(message: str) -> None:
    assert Refusal(message, 0, 1).no_answer


@pytest.mark.parametrize("message", [NO_VIEW, NO_COLUMN, NO_DATABASE, NO_ROOM, "anything else"])
def test_what_a_server_says_that_is_there_is_an_answer(message: str) -> None:
    assert not Refusal(message, 0, 1).no_answer


def test_a_lost_folder_and_a_full_disk_excuse_what_they_take_away_while_they_do() -> None:
    lost = Fault(1, "loss of a folder", "", "rm -r metastore", since=10, until=20)
    full = Fault(2, "full disk", "", "", since=30, until=40)
    killed = Fault(3, "kill of the command", "", "", since=50, until=60)
    faults = [lost, full, killed]
    assert Refusal(NO_VIEW, 19, 21).excused_by(faults)
    assert not Refusal(NO_VIEW, 21, 22).excused_by(faults)
    assert Refusal(NO_ROOM, 31, 32).excused_by(faults)
    assert not Refusal(NO_VIEW, 31, 32).excused_by(faults)
    assert not Refusal(NO_DATABASE, 31, 32).excused_by(faults)
    assert not Refusal(NO_ROOM, 51, 52).excused_by(faults)


def test_a_view_that_is_missing_for_a_moment_breaks_the_campaign(tmp_path: Path) -> None:
    campaign = Campaign(Plan(seed=1, faults=1, sources=("weather",)), tmp_path, tell=lambda _: None)
    campaign.account.faults = [Fault(1, "kill of the command", "window", "", since=10, until=20)]
    reads = [{"error": message, "begun": 12, "ended": 13} for message in (KILLED, NOT_THERE, STOPPED)]
    file = tmp_path / "reads.jsonl"
    file.write_text("".join(f"{json.dumps(read)}\n" for read in reads))
    campaign.look_at_reads(file)
    assert (campaign.account.unanswered_reads, campaign.account.broken) == (3, [])
    file.write_text(json.dumps({"error": NO_VIEW, "begun": 14, "ended": 15}))
    campaign.look_at_reads(file)
    assert campaign.account.broken == [NO_VIEW]
    assert NO_VIEW in str(campaign.account)
