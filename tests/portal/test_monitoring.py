"""The figures for a monitoring system, asked over HTTP from a lake with late rows, rejects and a failed check."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from spark_jobs.cli.metrics_server import MetricsServer
from spark_jobs.config import Settings
from spark_jobs.storage.coordination.turns import Line, NoDriver, Turn, hold_turn
from spark_jobs.storage.descriptions.times import micros, parse_time
from tests.jobs.harness import SOURCE
from tests.portal.conftest import EVIL


@contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """The address of the figures of an installation, which are served."""
    server = MetricsServer(settings, 0)
    thread = Thread(target=server.serve)
    thread.start()
    try:
        yield server.url
    finally:
        server.close()
        thread.join()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """The value of each sample, by its name and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def figures(settings: Settings) -> dict[tuple[str, ...], float]:
    with serving(settings) as url:
        return samples(httpx.get(url, trust_env=False, timeout=60).text)


def test_the_figures_of_a_source_are_those_of_its_lake(home: Settings) -> None:
    values = figures(home)
    of_source = {name: value for (name, *labels), value in values.items() if labels == ["meters"]}
    end_of_day_3 = parse_time("2024-01-05")
    assert of_source["tidemark_source_published_time_seconds"] == end_of_day_3.timestamp()
    expected = {
        "readable": 1, "landed_rows": 5, "late_rows": 1, "duplicate_rows": 0, "quarantined_records": 1,
        "open_records": 1, "missing_drops": 1, "waiting_runs": 0, "active_runs": 0, "overdue": 0,
    }  # fmt: skip
    assert {name: of_source[f"tidemark_source_{name}"] for name in expected} == expected
    # a drop a day since then
    assert of_source["tidemark_source_behind_drops"] > 365
    assert of_source["tidemark_run_failed"] == 0
    stages = {labels[1] for name, *labels in values if name == "tidemark_run_stage_seconds"}
    assert stages == {"land", "seal", "window", "compact", "publish"}
    tables = {labels[1] for name, *labels in values if name == "tidemark_run_restated_rows"}
    assert "silver.hourly_history" in tables


def test_no_figure_has_a_value_of_a_row(home: Settings) -> None:
    with serving(home) as url:
        answer = httpx.get(url, trust_env=False, timeout=60)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert EVIL[:8] not in answer.text


def test_runs_that_work_and_wait_are_counted(home: Settings) -> None:
    leases = home.home / "leases"
    with hold_turn(leases, "meters", Turn("one", 0, "2024-01-01"), driver=NoDriver()):
        waiting = Line(leases, "meters", Turn("two", micros(parse_time("2024-01-02")), "2024-01-02"), NoDriver())
        assert waiting.step() is not None
        values = figures(home)
        waiting.leave_line()
    assert values["tidemark_source_active_runs", "meters"] == values["tidemark_source_waiting_runs", "meters"] == 1
    assert figures(home)["tidemark_source_waiting_runs", "meters"] == 0


def test_a_source_that_cannot_be_read_takes_no_other_along(home: Settings, tmp_path: Path) -> None:
    broken = home.model_copy(update={"home": tmp_path, "lake": str(tmp_path / "lake"), "sources": tmp_path / "sources"})
    shutil.copytree(home.home / "lake", tmp_path / "lake")
    broken.sources.mkdir()
    other = SOURCE.replace("source: meters", "source: other").replace("hourly:", "a:").replace("shifts:", "b:")
    (broken.sources / "meters.yml").write_text(SOURCE)
    (broken.sources / "other.yml").write_text(other)
    for file in (tmp_path / "lake" / "bronze.db" / "files").rglob("*.parquet"):
        file.write_bytes(b"no Parquet")
    values = figures(broken)
    assert values["tidemark_source_readable", "meters"] == 0
    assert values["tidemark_source_readable", "other"] == 1
    assert ("tidemark_source_landed_rows", "meters") not in values


def test_a_name_that_leads_to_the_loopback_and_other_paths_are_refused(home: Settings) -> None:
    with serving(home) as url, httpx.Client(trust_env=False, timeout=60) as client:
        port = httpx.URL(url).port
        assert client.get(url, headers={"Host": f"localhost:{port}"}).status_code == 200
        assert client.get(url, headers={"Host": f"example.org:{port}"}).status_code == 403
        assert client.get(url.replace("/metrics", "/")).status_code == 404
