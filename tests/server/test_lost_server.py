"""What the loss of the lake server is told by, from what pyspark really raises; no server is needed for that."""

from __future__ import annotations

import warnings

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.client import SparkConnectClient

from spark_jobs.server.errors import ServerUnreachable
from spark_jobs.session import is_lost_server, work_on


def _client() -> SparkConnectClient:
    return SparkConnectClient("sc://127.0.0.1:1/;user_agent=test", retry_policy={"max_retries": 0})


class _Session:
    """As much of a session as `work_on` uses: its interrupts fail as those of a server that is gone."""

    def __init__(self, client: SparkConnectClient) -> None:
        self.interruptAll = client.interrupt_all


def test_a_server_that_does_not_answer_is_lost():
    with warnings.catch_warnings(), pytest.raises(PySparkException) as refusal:
        warnings.simplefilter("ignore")
        _client()._analyze(method="spark_version")
    assert is_lost_server(refusal.value)


def test_a_session_that_has_ended_is_lost(settings):
    client = _client()
    client.close()
    with pytest.raises(ServerUnreachable) as refusal, work_on(_Session(client), settings):
        client._analyze(method="spark_version")
    assert refusal.value.code == "server_unreachable"
    assert "do the same again" in str(refusal.value)


def test_another_failure_stays_itself_though_the_interrupt_fails(settings):
    client = _client()
    client.close()
    with pytest.raises(ZeroDivisionError), work_on(_Session(client), settings):
        raise ZeroDivisionError
