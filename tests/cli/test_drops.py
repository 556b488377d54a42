"""Which drops a command lists: those whose run failed as well, though nothing of them has come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_jobs.cli import drops as cli_drops
from spark_jobs.cli.drops import document, drops_asked_for
from spark_jobs.config import Settings
from spark_jobs.server.airflow_api import AirflowApi, AirflowRefused
from spark_jobs.server.airflow_parts import admin_password
from spark_jobs.sources import load_source
from tests.jobs.harness import write_source


@pytest.mark.slow
def test_a_drop_whose_run_failed_before_anything_came_is_listed_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = write_source(Settings(home=tmp_path, landing=tmp_path / "landing"))
    source = load_source(settings.sources / "meters.yml")
    interval = {"data_interval_start": "2024-01-03T00:00:00Z", "data_interval_end": "2024-01-04T00:00:00Z"}
    times = {"run_after": "2024-01-04T00:00:00Z", "queued_at": "2024-01-04", "logical_date": None, "conf": None}
    failed = {"dag_id": "meters", "dag_run_id": "r", "run_type": "scheduled", "state": "failed", **interval, **times}
    refused = failed | {"conf": {"from": "2023-01-01"}}
    monkeypatch.setattr(AirflowApi, "runs", lambda self, dag: [failed, refused])
    assert document(settings, source) == [], "no Airflow ever ran"
    admin_password(settings)
    listed = [("2024-01-01", "missing"), ("2024-01-02", "missing"), ("2024-01-03", "failed")]
    assert [(drop["drop"], drop["state"]) for drop in document(settings, source)] == listed
    assert [drop.seq_no for drop in drops_asked_for(settings, source, only_missing=True)] == [0, 1, 2]
    assert [drop.seq_no for drop in drops_asked_for(settings, source, failed=True)] == [2]
    assert [drop.seq_no for drop in drops_asked_for(settings, source, "2024-01-02", "2024-01-02")] == [1]

    def away(*_: Any) -> Any:
        raise AirflowRefused(expected="a", found="no answer", status=None, path="dags")

    notes: list[str] = []
    monkeypatch.setattr(AirflowApi, "runs", away)
    monkeypatch.setattr(cli_drops, "note", notes.append)
    assert document(settings, source) == []
    assert notes == ["which runs failed is not known: no answer"]
    with pytest.raises(AirflowRefused):
        drops_asked_for(settings, source, failed=True)
