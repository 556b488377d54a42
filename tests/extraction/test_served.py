"""A table and a topic through the lake server, as commands of a user, runs in Airflow and `spark-submit` read them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.jvm.jars import KAFKA, POSTGRESQL
from spark_jobs.model import STAGES
from spark_jobs.server.airflow_api import AirflowApi
from tests.extraction.harness import source_with
from tests.extraction.test_tables import BY_TIME, ROWS, insert, server, shop  # noqa: F401
from tests.extraction.test_topics import TOPIC, message, running  # noqa: F401
from tests.installations import ODD_NAME, TIDEMARK, Installation
from tests.jobs.harness import write_source
from tests.kafka import Broker
from tests.postgres import PASSWORD, USER, Postgres

pytestmark = [
    pytest.mark.turns,
    pytest.mark.server,
    pytest.mark.skipif(
        not (KAFKA.is_there(Settings()) and POSTGRESQL.is_there(Settings())),
        reason="jars of Kafka and PostgreSQL: make setup-kafka setup-postgresql",
    ),
]
DAYS = ("--from", "2024-01-01", "--to", "2024-01-03")


@pytest.fixture
def made(tmp_path: Path, shop: Postgres, running: Broker) -> Installation:  # noqa: F811
    """A home with a source of a table and one of a topic; no server runs."""
    home = tmp_path / ODD_NAME
    installed = Installation(home, sources=home / "sources", landing=home / "landing")
    write_source(installed.settings, source_with(BY_TIME))
    text = source_with(TOPIC.replace("T,", "served,"))
    for name, other in {"source: meters": "source: events", "hourly": "by_hour", "shifts": "by_shift"}.items():
        text = text.replace(name, other)
    (installed.settings.sources / "events.yml").write_text(text)
    file = installed.settings.connections
    file.touch(mode=0o600)
    reached = {
        "shop": {"url": shop.url, "user": USER, "password": PASSWORD},
        "events": {"servers": running.servers},
    }
    file.write_text(json.dumps(reached))
    return installed


@pytest.fixture
def installed(made: Installation) -> Iterator[Installation]:
    """The same, while its lake server runs."""
    with made.serving("--no-airflow"):
        yield made


def bring_rows(spark: SparkSession, shop: Postgres, broker: Broker) -> None:  # noqa: F811
    """The same rows into the table and, over two partitions, into the topic."""
    insert(shop, *ROWS)
    broker.create(spark, "served", 2)
    broker.send(spark, "served", *(message(*row, partition=place % 2) for place, row in enumerate(ROWS)))


def test_a_table_and_a_topic_are_read_through_the_lake_server(
    spark: SparkSession,
    installed: Installation,
    shop: Postgres,  # noqa: F811
    running: Broker,  # noqa: F811
) -> None:
    bring_rows(spark, shop, running)

    planned: Any = installed.json("plan", "meters", *DAYS)
    assert [drop["rows"] for drop in planned["drops"]] == [2, 3, 1], "a plan reads the table, too"
    assert list(installed.settings.landing_folder.rglob("*.gz")) == []
    for source in ("meters", "events"):
        installed.json("run", source, *DAYS)
    hours = {name: installed.sql(f"SELECT * FROM silver.{name}") for name in ("hourly", "by_hour")}
    assert len(hours["hourly"]) > 0
    assert _values(hours["hourly"]) == _values(hours["by_hour"]), "the same rows, however they are read"
    why = installed.json("why", "events", "events", "m-c")
    assert {"topic": "served", "partition": 1, "offset": 2}.items() <= why["deltas"][0].items()
    read = installed.sql("SELECT source, sum(rows) AS rows FROM bronze.extracts GROUP BY source ORDER BY source")
    assert read == [{"source": "events", "rows": 6}, {"source": "meters", "rows": 6}]

    shop.execute("UPDATE meters SET load = 50 WHERE id = 'a1'")
    installed.json("run", "meters", "--from", "2024-01-01", "--to", "2024-01-01", "--reread")
    changed = installed.sql("SELECT max(high) AS high FROM silver.hourly")
    assert changed == [{"high": 50}]
    assert installed.run(str(TIDEMARK), "audit", "meters").returncode == 0

    logs = [path for path in installed.settings.home.rglob("*") if path.is_file() and path.suffix in (".log", ".txt")]
    assert logs
    assert [path for path in logs if PASSWORD in path.read_text(errors="replace")] == []


@pytest.mark.long
@pytest.mark.airflow
@pytest.mark.timeout(1500)
def test_a_table_and_a_topic_are_read_by_runs_in_airflow_and_by_spark_submit(
    spark: SparkSession,
    made: Installation,
    shop: Postgres,  # noqa: F811
    running: Broker,  # noqa: F811
) -> None:
    bring_rows(spark, shop, running)

    # the first day by `spark-submit`, a driver of its own
    properties = made.run(str(TIDEMARK), "spark-conf").stdout.strip()
    for source in ("meters", "events"):
        for stage in STAGES[:-1]:
            job = (str(CHECKOUT / "spark_jobs" / "jobs" / "stage.py"), stage, source)
            day = ("--from", "2024-01-01", "--to", "2024-01-01", "--run-id", f"by-hand-{source}")
            done = made.run(str(TIDEMARK.with_name("spark-submit")), "--properties-file", properties, *job, *day)
            assert done.returncode == 0, done.stdout + done.stderr

    with made.serving(), AirflowApi(made.settings) as api:
        for source in ("meters", "events"):
            api.patch(f"dags/{source}", {"is_paused": False})
            # the first day once more, which publishes what `spark-submit` has left to publish
            conf = {"from": "2024-01-01", "to": "2024-01-03"}
            run = api.post(f"dags/{source}/dagRuns", {"logical_date": None, "conf": conf})["dag_run_id"]
            deadline = time.monotonic() + 600
            while (state := api.get(f"dags/{source}/dagRuns/{run}")["state"]) not in ("success", "failed"):
                assert time.monotonic() < deadline, f"{run} of {source} is {state}"
                time.sleep(0.5)
            assert state == "success"
        hours = {name: made.sql(f"SELECT * FROM silver.{name}") for name in ("hourly", "by_hour")}
        assert len(hours["hourly"]) > 0
        assert _values(hours["hourly"]) == _values(hours["by_hour"])
        read = made.sql("SELECT source, sum(rows) AS rows FROM bronze.extracts GROUP BY source ORDER BY source")
        assert read == [{"source": "events", "rows": 6}, {"source": "meters", "rows": 6}]
    told = [path for path in made.settings.home.rglob("*.log") if PASSWORD in path.read_text(errors="replace")]
    assert told == []


def _values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("meter", "window_start", "n", "total", "high", "mean")
    return sorted(tuple(row[name] for name in names) for row in rows)
