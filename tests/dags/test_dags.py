"""The DAGs made from source files: which there are, what they consist of, and what making them costs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
DAGS = CHECKOUT / "dags"

INSPECT = """
import json, sys, time, runpy
sys.path.insert(0, sys.argv[1])
begun = time.process_time()
try:
    names = runpy.run_path(sys.argv[2])
except Exception as error:
    print(json.dumps({"error": str(error), "parts": [str(e) for e in getattr(error, "exceptions", [])]}))
    sys.exit()
seconds = time.process_time() - begun
from airflow.sdk import DAG
dags = {d.dag_id: d for d in names.values() if isinstance(d, DAG)}
print(json.dumps({
    "dags": {name: {
        "schedule": repr(d.timetable) if not hasattr(d.timetable, "_expression") else d.timetable._expression,
        "timetable": type(d.timetable).__name__,
        "start_date": d.start_date.isoformat(),
        "catchup": d.catchup,
        "max_active_runs": d.max_active_runs,
        "tags": sorted(d.tags),
        "params": sorted(d.params),
        "doc_md": d.doc_md,
        "tasks": {t.task_id: {
            "after": sorted(t.upstream_task_ids), "outlets": [o.uri for o in t.outlets], "retries": t.retries,
            "by_hand": t.by_hand,
        } for t in d.tasks},
    } for name, d in dags.items()},
    "modules": sorted(m for m in sys.modules if m.split(".")[0] in ("pyspark", "great_expectations", "dbt")
                      or m.startswith(("spark_jobs.jobs", "spark_jobs.session"))),
    "seconds": seconds,
}))
"""


def parsed(python_file: str, sources: Path, tmp_path: Path) -> Any:
    """What a fresh process finds in one of the DAG files, with the source files of `sources`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEMARK_", "AIRFLOW"))} | {
        "TIDEMARK_SOURCES": str(sources),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "PYTHONPATH": str(CHECKOUT),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    command = [sys.executable, "-c", INSPECT, str(DAGS), str(DAGS / python_file)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return parsed("sources.py", DAGS / "sources", tmp_path_factory.mktemp("dags"))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DAGS / "sources", tmp_path / "sources"))


def test_one_source_file_is_one_dag(shipped: Any) -> None:
    assert sorted(shipped["dags"]) == ["flights", "weather"]


def test_making_dags_imports_neither_spark_nor_the_jobs_nor_what_the_gates_need(shipped: Any) -> None:
    assert shipped["modules"] == []


def test_making_dags_takes_less_than_two_seconds_of_processor_time(shipped: Any) -> None:
    assert shipped["seconds"] < 2 * 2, (
        "twice the promise: the processor time of a busy machine is not that of a quiet one"
    )


def test_the_stages_follow_each_other(shipped: Any) -> None:
    for dag in shipped["dags"].values():
        assert {name: task["after"] for name, task in dag["tasks"].items()} == {
            "land": [],
            "seal": ["land"],
            "window": ["seal"],
            "compact": ["window"],
            "publish": ["compact"],
        }


def test_the_dag_of_flights_is_as_its_file_says(shipped: Any) -> None:
    dag = shipped["dags"]["flights"]
    assert (dag["timetable"], dag["start_date"]) == ("CronDataIntervalTimetable", "2013-01-01T00:00:00+00:00")
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    assert dag["tags"] == ["new-york", "sample", "tidemark"]
    assert dag["params"] == ["dry_run", "from", "to"]
    assert {task["retries"] for task in dag["tasks"].values()} == {2}


def test_assets_mark_what_each_stage_writes(shipped: Any) -> None:
    outlets = {task: found["outlets"] for task, found in shipped["dags"]["flights"]["tasks"].items()}
    assert outlets == {
        "land": ["tidemark://bronze/flights"],
        "seal": ["tidemark://trace/flights"],
        "window": ["tidemark://silver/departure_delays", "tidemark://silver/rotations"],
        "compact": ["tidemark://gold/flights"],
        "publish": ["tidemark://published/flights"],
    }


def test_the_page_of_a_dag_says_what_it_reads_and_writes_and_what_to_do_on_failure(shipped: Any) -> None:
    page = shipped["dags"]["flights"]["doc_md"]
    for told in (
        "flights/{date}/*",
        "silver.departure_delays",
        "silver.rotations",
        "gold.flights",
        "If a gate fails",
        "dry_run",
    ):
        assert told in page


def test_adding_a_file_adds_a_dag_without_python(copied: Path, tmp_path: Path) -> None:
    text = (copied / "weather.yml").read_text()
    (copied / "tides.yml").write_text(
        text.replace("source: weather", "source: tides")
        .replace("every: 1 day", "every: 6 hours")
        .replace("{date}/*", "{date}/{hour}/*")
    )
    found = parsed("sources.py", copied, tmp_path)["dags"]
    assert sorted(found) == ["flights", "tides", "weather"]
    assert found["tides"]["schedule"] == "0 */6 * * *"


def test_a_source_that_people_run_by_hand_keeps_a_schedule_for_backfills(copied: Path, tmp_path: Path) -> None:
    text = (copied / "weather.yml").read_text()
    other = {"schedule": "manual", "tags": ["by-hand"]}
    document = yaml.safe_load(text)
    document["dag"] = {**document.get("dag", {}), **other}
    (copied / "weather.yml").write_text(yaml.safe_dump(document))
    dag = parsed("sources.py", copied, tmp_path)["dags"]["weather"]
    assert {task["by_hand"] for task in dag["tasks"].values()} == {True}
    assert dag["timetable"] == "CronDataIntervalTimetable"


def test_a_wrong_file_does_not_take_the_other_dags_with_it(copied: Path, tmp_path: Path) -> None:
    (copied / "broken.yml").write_text("source: broken\nstart: yesterday\nevery: 5\n")
    assert sorted(parsed("sources.py", copied, tmp_path)["dags"]) == ["flights", "weather"]


def test_a_wrong_file_is_an_import_error_that_names_the_file_and_every_problem(copied: Path, tmp_path: Path) -> None:
    (copied / "broken.yml").write_text("source: broken\nstart: yesterday\nevery: 5\n")
    (copied / "second.yml").write_text("source: other\n")
    told = parsed("source_problems.py", copied, tmp_path)["parts"]
    assert ["broken.yml" in told[0], "second.yml" in told[1]] == [True, True]
    assert all(field in told[0] for field in ("start", "every", "landing", "columns"))


def test_a_window_name_that_two_sources_share_is_an_import_error_that_names_both(copied: Path, tmp_path: Path) -> None:
    text = (copied / "flights.yml").read_text()
    (copied / "planes.yml").write_text(text.replace("source: flights", "source: planes"))
    # a DAG for each: the source that has published the name goes on, runs of the other are refused
    assert sorted(parsed("sources.py", copied, tmp_path)["dags"]) == ["flights", "planes", "weather"]
    told = parsed("source_problems.py", copied, tmp_path)["parts"]
    assert [("flights.yml" in part, "planes.yml" in part) for part in told] == [(True, True)] * 2


def test_without_problems_the_file_that_shows_them_imports(tmp_path: Path) -> None:
    assert parsed("source_problems.py", DAGS / "sources", tmp_path)["dags"] == {}
