"""What the loss of the lake server is told by, from what pyspark really raises; no server is needed for that."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.client import SparkConnectClient

from spark_jobs.server.errors import ServerUnreachable
from spark_jobs.session import is_lost_server, work_on


@pytest.fixture
def client() -> Iterator[SparkConnectClient]:
    """A client of a server that is gone. An open one would call that server once more when the process ends."""
    client = SparkConnectClient("sc://127.0.0.1:1/;user_agent=test", retry_policy={"max_retries": 0})
    yield client
    client.close()


class _Session:
    """As much of a session as `work_on` uses: its interrupts fail as those of a server that is gone."""

    def __init__(self, client: SparkConnectClient) -> None:
        self.interruptAll = client.interrupt_all


def test_a_server_that_does_not_answer_is_lost(client):
    with warnings.catch_warnings(), pytest.raises(PySparkException) as refusal:
        warnings.simplefilter("ignore")
        client._analyze(method="spark_version")
    assert is_lost_server(refusal.value)


def test_a_session_that_has_ended_is_lost(client, settings):
    client.close()
    with pytest.raises(ServerUnreachable) as refusal, work_on(_Session(client), settings):
        client._analyze(method="spark_version")
    assert refusal.value.code == "server_unreachable"
    assert "do the same again" in str(refusal.value)


def test_another_failure_stays_itself_though_the_interrupt_fails(client, settings):
    client.close()
    with pytest.raises(ZeroDivisionError), work_on(_Session(client), settings):
        raise ZeroDivisionError
