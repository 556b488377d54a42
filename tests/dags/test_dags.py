"""The DAGs made from source files: which there are, what they consist of, and what making them reads and imports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
DAGS = CHECKOUT / "dags"

INSPECT = """
# imports Airflow once; a copy of this process reads each DAG file, and has imported nothing else
import json, os, sys, runpy
from airflow.sdk import DAG
sys.path.insert(0, sys.argv[1])
for line in sys.stdin:
    request = json.loads(line)
    if os.fork() == 0:
        break
    os.wait()
else:
    sys.exit()
os.environ.update(request["environment"])
os.chdir(request["folder"])
read = []
sources = os.environ["TIDEMARK_SOURCES"] + "/"
sys.addaudithook(lambda event, of: event == "open" and str(of[0]).startswith(sources) and read.append(str(of[0])))
try:
    names = runpy.run_path(request["file"])
except Exception as error:
    print(json.dumps({"error": str(error), "parts": [str(e) for e in getattr(error, "exceptions", [])]}))
    sys.exit()
dags = {d.dag_id: d for d in names.values() if isinstance(d, DAG)}
print(json.dumps({
    "dags": {name: {
        "schedule": next((str(getattr(d.timetable, name)) for name in ("summary", "expression", "delta")
                          if hasattr(d.timetable, name)), None),
        "paused": d.is_paused_upon_creation,
        "start_date": d.start_date.isoformat(),
        "catchup": d.catchup,
        "max_active_runs": d.max_active_runs,
        "tags": sorted(d.tags),
        "params": sorted(d.params),
        "doc_md": d.doc_md,
        "deadlines": [[each.interval.total_seconds(), each.reference.reference_name, each.callback.serialize()]
                      for each in (d.deadline or [])],
        "on_failure": [[each.source, each.recipients] for each in (d.on_failure_callback or [])],
        "tasks": {t.task_id: {
            "after": sorted(t.upstream_task_ids), "inlets": [i.uri for i in t.inlets],
            "outlets": [o.uri for o in t.outlets], "retries": t.retries,
            "rule": t.trigger_rule,
            "on_failure": [[each.source, each.recipients] for each in (t.on_failure_callback or [])],
        } for t in d.tasks},
    } for name, d in dags.items()},
    "modules": sorted(m for m in sys.modules if m.split(".")[0] in ("pyspark", "great_expectations", "dbt")
                      or m.startswith(("spark_jobs.jobs", "spark_jobs.session", "airflow.triggers"))),
    "read": sorted(read),
}))
"""


Parse = Callable[..., Any]


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parse]:
    """A function that gives what a process finds that reads one of the DAG files, and no other before it.

    It takes the file's name, the folder of the source files, the process's working folder, and settings.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEMARK_", "AIRFLOW"))} | {
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
        "PYTHONPATH": str(CHECKOUT),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    command = [sys.executable, "-c", INSPECT, str(DAGS)]
    with subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def parse(python_file: str, sources: Path, folder: Path, **settings: str) -> Any:
            chosen = {"TIDEMARK_SOURCES": str(sources), **settings}
            request = {"file": str(DAGS / python_file), "folder": str(folder), "environment": chosen}
            print(json.dumps(request), file=requests, flush=True)
            # beside what Airflow logs
            return json.loads(next(line for line in answers if line.startswith("{")))

        yield parse
        requests.close()


@pytest.fixture(scope="module")
def shipped(parsed: Parse, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return parsed("sources.py", DAGS / "sources", tmp_path_factory.mktemp("dags"))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DAGS / "sources", tmp_path / "sources"))


def test_one_source_file_is_one_dag(shipped: Any) -> None:
    assert sorted(shipped["dags"]) == ["flights", "weather"]


def test_making_dags_imports_neither_spark_nor_the_jobs_nor_what_the_gates_need(shipped: Any) -> None:
    assert shipped["modules"] == []


def test_making_dags_reads_every_source_file_once(shipped: Any) -> None:
    assert shipped["read"] == sorted(str(path) for path in (DAGS / "sources").glob("*.yml"))


def test_a_task_reads_the_file_of_its_own_source_alone(parsed: Parse, tmp_path: Path) -> None:
    # how Airflow says for which DAG it parses a file
    of_task = {"_AIRFLOW_PARSING_CONTEXT_DAG_ID": "weather"}
    found = parsed("sources.py", DAGS / "sources", tmp_path, **of_task)
    assert [*found["dags"]] == ["weather"]
    assert found["read"] == [str(DAGS / "sources" / "weather.yml")]


def test_the_stages_follow_each_other(shipped: Any) -> None:
    for dag in shipped["dags"].values():
        assert {name: task["after"] for name, task in dag["tasks"].items()} == {
            "land": [],
            "seal": ["land"],
            "window": ["seal"],
            "compact": ["window"],
            "publish": ["compact"],
        }


def test_a_first_stage_without_files_does_not_skip_the_others(shipped: Any) -> None:
    rules = {task: found["rule"] for task, found in shipped["dags"]["flights"]["tasks"].items()}
    assert rules == {"land": "all_success", "seal": "none_failed"} | dict.fromkeys(
        ("window", "compact", "publish"), "all_success"
    )


def test_the_dag_of_flights_is_as_its_file_says(shipped: Any) -> None:
    dag = shipped["dags"]["flights"]
    assert (dag["schedule"], dag["start_date"]) == ("manual", "2013-01-01T00:00:00+00:00")
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 16)
    assert dag["tags"] == ["new-york", "sample", "tidemark"]
    of_drops, of_files = ["dry_run", "from", "pass_gap", "plan", "to"], ["file", "replay", "retract", "rule"]
    assert dag["params"] == sorted(["accept_definition", "because", "override", *of_drops, *of_files])
    assert {task["retries"] for task in dag["tasks"].values()} == {2}


def test_assets_mark_what_each_stage_writes(shipped: Any) -> None:
    outlets = {task: found["outlets"] for task, found in shipped["dags"]["flights"]["tasks"].items()}
    assert outlets == {
        "land": ["tidemark://bronze/flights"],
        "seal": ["tidemark://trace/flights"],
        "window": ["tidemark://silver/departure_delays", "tidemark://silver/rotations"],
        "compact": ["tidemark://gold/flights"],
        "publish": ["tidemark://published/flights", "tidemark://drops/flights"],
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


def test_adding_a_file_adds_a_dag_without_python(parsed: Parse, copied: Path, tmp_path: Path) -> None:
    text = (copied / "weather.yml").read_text()
    (copied / "tides.yml").write_text(
        text.replace("source: weather", "source: tides")
        .replace("every: 1 day", "every: 6 hours")
        .replace("{date}/*", "{date}/{hour}/*")
        .replace("schedule: manual", "schedule: every")
    )
    found = parsed("sources.py", copied, tmp_path)["dags"]
    assert sorted(found) == ["flights", "tides", "weather"]
    assert found["tides"]["schedule"] == "every 6 hours"


def test_a_source_that_people_run_is_shown_as_manual_and_not_paused(
    parsed: Parse, copied: Path, tmp_path: Path
) -> None:
    document = yaml.safe_load((copied / "weather.yml").read_text())
    document["dag"]["schedule"] = "every"
    (copied / "weather.yml").write_text(yaml.safe_dump(document))
    dags = parsed("sources.py", copied, tmp_path)["dags"]
    assert {name: (dag["schedule"], dag["paused"]) for name, dag in dags.items()} == {
        "flights": ("manual", False),
        "weather": ("every 1 day", True),
    }


def test_a_source_that_comes_after_others_says_so_and_they_must_exist(
    parsed: Parse, copied: Path, tmp_path: Path
) -> None:
    document = yaml.safe_load((copied / "weather.yml").read_text())
    document["dag"] = {"schedule": "every", "after": ["flights"]}
    (copied / "weather.yml").write_text(yaml.safe_dump(document))
    tasks = parsed("sources.py", copied, tmp_path)["dags"]["weather"]["tasks"]
    assert {name: task["inlets"] for name, task in tasks.items() if task["inlets"]} == {
        "land": ["tidemark://published/flights"]
    }
    document["dag"]["after"] = ["flight", "weather"]
    (copied / "weather.yml").write_text(yaml.safe_dump(document))
    (told,) = parsed("source_problems.py", copied, tmp_path)["parts"]
    assert "(did you mean `flights`?)" in told
    assert "weather waits for weather" in told


def test_a_wrong_file_does_not_take_the_other_dags_with_it(parsed: Parse, copied: Path, tmp_path: Path) -> None:
    (copied / "broken.yml").write_text("source: broken\nstart: yesterday\nevery: 5\n")
    assert sorted(parsed("sources.py", copied, tmp_path)["dags"]) == ["flights", "weather"]


def test_a_wrong_file_is_an_import_error_that_names_the_file_and_every_problem(
    parsed: Parse, copied: Path, tmp_path: Path
) -> None:
    (copied / "broken.yml").write_text("source: broken\nstart: yesterday\nevery: 5\n")
    (copied / "second.yml").write_text("source: other\n")
    told = parsed("source_problems.py", copied, tmp_path)["parts"]
    assert ["broken.yml" in told[0], "second.yml" in told[1]] == [True, True]
    assert all(field in told[0] for field in ("start", "every", "landing", "columns"))


def test_a_window_name_that_two_sources_share_is_an_import_error_that_names_both(
    parsed: Parse, copied: Path, tmp_path: Path
) -> None:
    text = (copied / "flights.yml").read_text()
    (copied / "planes.yml").write_text(text.replace("source: flights", "source: planes"))
    # a DAG for each: the source that has published the name goes on, runs of the other are refused
    assert sorted(parsed("sources.py", copied, tmp_path)["dags"]) == ["flights", "planes", "weather"]
    told = parsed("source_problems.py", copied, tmp_path)["parts"]
    assert [("flights.yml" in part, "planes.yml" in part) for part in told] == [(True, True)] * 2


def test_without_problems_the_file_that_shows_them_imports(parsed: Parse, tmp_path: Path) -> None:
    assert parsed("source_problems.py", DAGS / "sources", tmp_path)["dags"] == {}


MAINTENANCE = "tidemark-maintenance"


def test_maintenance_is_one_dag_with_a_task_a_source_and_the_rest_after_them(parsed: Parse, tmp_path: Path) -> None:
    found = parsed("maintenance.py", DAGS / "sources", tmp_path)
    assert list(found["dags"]) == [MAINTENANCE]
    dag = found["dags"][MAINTENANCE]
    assert (dag["schedule"], dag["paused"], dag["catchup"]) == ("0 3 * * 0", False, False)
    assert dag["max_active_runs"] == 1
    tasks = {name: (task["after"], task["rule"]) for name, task in dag["tasks"].items()}
    of_sources = ["maintain_flights", "maintain_weather"]
    assert tasks == {
        **dict.fromkeys(of_sources, ([], "all_success")),
        # a source that fails keeps no backup from being made
        "installation": (of_sources, "all_done"),
    }
    assert found["modules"] == []
    assert found["read"] == sorted(str(path) for path in (DAGS / "sources").glob("*.yml"))


def test_a_new_installation_is_not_maintained_for_what_was_due_before_it(parsed: Parse, tmp_path: Path) -> None:
    def start() -> datetime:
        found = parsed("maintenance.py", DAGS / "sources", tmp_path, TIDEMARK_HOME=str(tmp_path))
        return datetime.fromisoformat(found["dags"][MAINTENANCE]["start_date"])

    assert start() < datetime(2025, 1, 1, tzinfo=UTC)
    before = datetime.now(UTC)
    (tmp_path / "airflow").mkdir(exist_ok=True)
    (tmp_path / "airflow" / "secrets.json").write_text("{}")
    assert start() >= before - timedelta(seconds=1)


def test_maintenance_that_people_run_has_no_schedule(parsed: Parse, tmp_path: Path) -> None:
    found = parsed("maintenance.py", DAGS / "sources", tmp_path, TIDEMARK_MAINTENANCE_SCHEDULE="manual")
    assert found["dags"][MAINTENANCE]["schedule"] is None


def test_a_wrong_file_does_not_take_the_maintenance_of_other_sources_with_it(
    parsed: Parse, copied: Path, tmp_path: Path
) -> None:
    (copied / "broken.yml").write_text("source: broken\n")
    tasks = parsed("maintenance.py", copied, tmp_path)["dags"][MAINTENANCE]["tasks"]
    assert sorted(tasks) == ["installation", "maintain_flights", "maintain_weather"]


def test_a_source_with_chains_in_the_background_has_a_dag_that_compacts_them(
    parsed: Parse, copied: Path, tmp_path: Path
) -> None:
    assert parsed("chains.py", copied, tmp_path)["dags"] == {}
    document = yaml.safe_load((copied / "weather.yml").read_text())
    document["compaction"] = {"strategy": "tiered", "background": True, "background_interval": "6 hours"}
    document["dag"] |= {"notify": ["a@example.org"]}
    (copied / "weather.yml").write_text(yaml.safe_dump(document))
    found = parsed("chains.py", copied, tmp_path)
    assert list(found["dags"]) == ["weather-chains"]
    dag = found["dags"]["weather-chains"]
    assert (dag["schedule"], dag["paused"], dag["catchup"], dag["max_active_runs"]) == ("6:00:00", False, False, 1)
    assert list(dag["tasks"]) == ["compact_chains"]
    assert dag["tasks"]["compact_chains"]["on_failure"] == [["weather", ["a@example.org"]]]
    assert found["modules"] == []


def test_whom_source_files_name_is_told_of_a_maintenance_that_fails(
    parsed: Parse, copied: Path, tmp_path: Path
) -> None:
    for name, told in (("flights", ["a@example.org", "b@example.org"]), ("weather", ["b@example.org"])):
        document = yaml.safe_load((copied / f"{name}.yml").read_text())
        document["dag"] |= {"notify": told}
        (copied / f"{name}.yml").write_text(yaml.safe_dump(document))
    tasks = parsed("maintenance.py", copied, tmp_path)["dags"][MAINTENANCE]["tasks"]
    assert {name: task["on_failure"] for name, task in tasks.items()} == {
        "maintain_flights": [["flights", ["a@example.org", "b@example.org"]]],
        "maintain_weather": [["weather", ["b@example.org"]]],
        "installation": [[None, ["a@example.org", "b@example.org"]]],
    }


def test_whom_a_source_file_names_is_told_of_runs_that_are_late_or_fail(
    parsed: Parse, copied: Path, tmp_path: Path
) -> None:
    told = ["team@example.org", "https://chat.example.org/hook"]
    document = yaml.safe_load((copied / "weather.yml").read_text())
    document["dag"] |= {"schedule": "every", "deadline": "2 h after hi", "notify": told}
    (copied / "weather.yml").write_text(yaml.safe_dump(document))
    dags = parsed("sources.py", copied, tmp_path)["dags"]
    called = {
        "path": "spark_jobs.scheduling.alerts.tell_late",
        "kwargs": {"source": "weather", "recipients": told},
    }
    assert dags["weather"]["deadlines"] == [[2 * 3600.0, "DropEnd", called]]
    assert dags["weather"]["on_failure"] == [["weather", told]]
    assert (dags["flights"]["deadlines"], dags["flights"]["on_failure"]) == ([], [])
