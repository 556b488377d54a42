"""What the loss of the lake server is told by, from what pyspark really raises; no server is needed for that."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql.connect.client import SparkConnectClient

from spark_jobs.config import Settings
from spark_jobs.server.errors import ServerUnreachable
from spark_jobs.session import is_lost_server, work_on


@pytest.fixture
def client() -> Iterator[SparkConnectClient]:
    """A client of a server that is gone. An open one would call that server once more when the process ends."""
    client = SparkConnectClient("sc://127.0.0.1:1/;user_agent=test", retry_policy={"max_retries": 0})
    yield client
    client.close()


class _Refusing(grpc.GenericRpcHandler):  # type: ignore[misc]  # the library has no types
    """Answers every call of any service with one status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda _, context: context.abort(self._code, self._details))


@contextmanager
def _client_refused(code: grpc.StatusCode, details: str) -> Iterator[SparkConnectClient]:
    """A client of a server that answers every call with this status."""
    server = grpc.server(ThreadPoolExecutor(1), handlers=[_Refusing(code, details)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    client = SparkConnectClient(f"sc://127.0.0.1:{port}/;user_agent=test", retry_policy={"max_retries": 0})
    try:
        yield client
    finally:
        client.close()
        server.stop(None)


class _Session:
    """As much of a session as `work_on` uses: its interrupts fail as those of a server that is gone."""

    def __init__(self, client: SparkConnectClient) -> None:
        self.interruptAll = client.interrupt_all


def _session(client: SparkConnectClient) -> Any:
    return _Session(client)


def test_a_server_that_does_not_answer_is_lost(client: SparkConnectClient) -> None:
    with warnings.catch_warnings(), pytest.raises(PySparkException) as refusal:
        warnings.simplefilter("ignore")
        client._analyze(method="spark_version")
    assert is_lost_server(refusal.value)


def test_a_session_that_has_ended_is_lost(client: SparkConnectClient, settings: Settings) -> None:
    client.close()
    with pytest.raises(ServerUnreachable) as refusal, work_on(_session(client), settings):
        client._analyze(method="spark_version")
    assert refusal.value.code == "server_unreachable"
    assert "do the same again" in str(refusal.value)


def test_another_failure_stays_itself_though_the_interrupt_fails(
    client: SparkConnectClient, settings: Settings
) -> None:
    client.close()
    with pytest.raises(ZeroDivisionError), work_on(_session(client), settings):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("code", "details", "lost"),
    [
        (grpc.StatusCode.CANCELLED, "Stream removed (RST_STREAM (Received RST_STREAM with error code 8))", True),
        (grpc.StatusCode.INTERNAL, "Cannot call methods on a stopped SparkContext.\nIt was created at:", True),
        (grpc.StatusCode.INTERNAL, "Job 7 cancelled because SparkContext was shut down", True),
        (grpc.StatusCode.INTERNAL, "SparkContext has been shutdown", True),
        (grpc.StatusCode.INTERNAL, "[TABLE_OR_VIEW_NOT_FOUND] The table or view `SparkContext` cannot be found", False),
        # the next server has another token
        (grpc.StatusCode.UNAUTHENTICATED, "Invalid authentication token", True),
    ],
)
def test_a_server_that_ends_in_order_is_lost_and_one_that_refuses_is_not(
    code: StatusCode, details: str, lost: bool
) -> None:
    with _client_refused(code, details) as client, pytest.raises(PySparkException) as refusal:
        client._analyze(method="spark_version")
    assert is_lost_server(refusal.value) is lost


def test_a_next_server_that_knows_nothing_of_a_statement_says_that_the_one_before_is_lost() -> None:
    details = {"error_type": "INVALID_HANDLE.SESSION_NOT_FOUND"}
    assert is_lost_server(PySparkRuntimeError(errorClass="RESPONSE_ALREADY_RECEIVED", messageParameters=details))


def test_a_call_that_we_cancel_ourselves_tells_nothing_of_the_server() -> None:
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        call = channel.unary_stream("/any/Call")(b"", wait_for_ready=True)
        call.cancel()
        with pytest.raises(grpc.RpcError) as cancelled:
            next(call)
    assert cancelled.value.code() is grpc.StatusCode.CANCELLED
    assert not is_lost_server(cancelled.value)
