"""A run through Airflow and the lake server with a file transport: both tell what they read and write; no secret."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_jobs.model import STAGES
from spark_jobs.server.airflow_api import AirflowApi
from tests.installations import Installation

pytestmark = [pytest.mark.long, pytest.mark.server, pytest.mark.airflow, pytest.mark.timeout(1500)]

DAY = "2013-01-01"
RUNS = "dags/flights/dagRuns"
SECRET = "geheim-4711"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    pytest.importorskip("airflow.providers.openlineage", reason="make setup-lineage")
    folder = tmp_path_factory.mktemp("lineage")
    places = {"log_file_path": str(folder / "airflow.jsonl"), "location": str(folder / "spark.jsonl")}
    config = folder / "openlineage.yml"
    config.write_text(yaml.safe_dump({"transport": {"type": "file", "append": True, **places}}))
    made = Installation(folder / "home")
    made.environment |= {"TIDEMARK_LINEAGE": str(config), "TIDEMARK_SMTP": f"smtp://user:{SECRET}@localhost:1"}
    with made.serving(timeout_s=900):
        made.json("prepare", "--from", DAY, "--to", DAY)
        yield made


def events(installation: Installation, name: str) -> list[dict[str, Any]]:
    """What one of the two has told."""
    file = installation.settings.home.parent / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def told_secrets(installation: Installation, text: str) -> list[Path]:
    """Files of secrets whose words are in a text."""
    words = {SECRET: Path("TIDEMARK_SMTP")}
    home = installation.settings.home
    for file in [*home.rglob("*token*"), *home.rglob("*password*"), *home.rglob("*secret*"), *home.rglob("*key*")]:
        if file.is_file() and file.stat().st_size < 10_000:
            for word in file.read_text(errors="ignore").replace('"', " ").replace(":", " ").split():
                if len(word) > 15:
                    words[word.strip(",{}")] = file
    assert len(words) > 2
    return [file for word, file in words.items() if word in text]


def test_a_run_tells_its_lineage_and_no_secret(installation: Installation) -> None:
    with AirflowApi(installation.settings) as api:
        api.patch("dags/flights", {"is_paused": False})
        run = api.post(RUNS, {"logical_date": None, "conf": {"from": DAY, "to": DAY}})["dag_run_id"]
        deadline = time.monotonic() + 900
        while api.get(f"{RUNS}/{run}")["state"] not in ("success", "failed"):
            assert time.monotonic() < deadline, "the run never ended"
            time.sleep(1)
        assert api.get(f"{RUNS}/{run}")["state"] == "success"
    done: dict[str, dict[str, Any]] = {}
    while not set(STAGES) <= set(done) and time.monotonic() < deadline:
        time.sleep(1)
        done = {
            event["job"]["name"].removeprefix("flights."): event
            for event in events(installation, "airflow.jsonl")
            if event["eventType"] == "COMPLETE"
        }
    assert set(STAGES) <= set(done)
    written = {stage: {each["name"] for each in done[stage]["outputs"]} for stage in STAGES}
    read = {stage: {each["name"] for each in done[stage]["inputs"]} for stage in STAGES}
    assert read["seal"] <= written["land"] and read["window"] <= written["seal"]
    (rows,) = [
        facets["rowCount"]
        for each in done["land"]["outputs"]
        if (facets := each.get("outputFacets", {}).get("outputStatistics"))
    ]
    assert (
        rows == int(installation.sql("SELECT sum(rows) AS n FROM bronze.files WHERE source = 'flights'")[0]["n"]) > 500
    )
    of_spark = events(installation, "spark.jsonl")
    by_spark = {each["name"] for event in of_spark for each in event.get("outputs", [])}
    # both name the tables alike, so that their lineage is one
    assert by_spark & (written["window"] | written["compact"] | written["seal"] | written["land"])
    assert not [event["job"]["name"] for event in of_spark if "sql" in event["job"]["facets"]]
    texts = json.dumps([events(installation, "airflow.jsonl"), of_spark])
    assert told_secrets(installation, texts) == []
