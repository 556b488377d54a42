"""Alerts, by e-mail to an SMTP server of the test's own and as a document to a webhook on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from email.message import Message
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import write_deltalake

from spark_jobs.config import Settings
from spark_jobs.scheduling.alerts import FailureNotifier, MaintenanceNotifier, alert, send, tell_late
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.records import arrow_records
from spark_jobs.storage.descriptions.quality_tables import RESULTS
from spark_jobs.storage.lakes.results import warned_checks
from tests.dags.recipients import mail_server, url, webhooks

pytestmark = pytest.mark.slow

LATE_RUN = {"dag_run_id": "scheduled__1", "run_type": "scheduled", "state": "running"}
"""What Airflow says of the run, as far as it is read; `test_live_schedule` has all of it."""


@pytest.fixture
def mails() -> Iterator[Any]:
    with mail_server() as server:
        yield server


@pytest.fixture
def hook() -> Iterator[Any]:
    with webhooks() as server:
        yield server


@pytest.fixture
def told(settings: Settings, mails: Any, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings that this process has from its environment, as Airflow's processes do."""
    monkeypatch.setenv("TIDEMARK_HOME", str(settings.home))
    monkeypatch.setenv("TIDEMARK_SMTP", f"smtp://127.0.0.1:{mails.server_address[1]}")
    monkeypatch.setenv("TIDEMARK_SMTP_FROM", "lake@example.org")
    return Settings()


def test_an_alert_reaches_mailboxes_and_webhooks(told: Settings, mails: Any, hook: Any) -> None:
    warned = alert(told, "warned", "meters", "scheduled__1", "checks warn: load_is_sane (3 rows)")
    assert send(told, warned, ["team@example.org", url(hook)]) == []
    [mail] = mails.received
    assert (mail["To"], mail["From"]) == ("team@example.org", "lake@example.org")
    assert mail["Subject"] == "Tidemark: meters warned (scheduled__1)"
    page = told.page_url("runs", "meters", "scheduled__1")
    assert body_of(mail) == ["checks warn: load_is_sane (3 rows)", "", page]
    assert hook.received == [
        {"event": "warned", "source": "meters", "run_id": "scheduled__1", "message": warned.message, "page": page}
    ]


def body_of(mail: Message) -> list[str]:
    content = mail.get_payload()
    assert isinstance(content, str)
    return content.strip().splitlines()


def test_one_recipient_that_cannot_be_told_does_not_keep_it_from_the_others(
    told: Settings, mails: Any, hook: Any
) -> None:
    failed = alert(told, "failed", "meters", "r", "it failed")
    failures = send(told, failed, [url(hook, "/closed"), "team@example.org"])
    assert len(failures) == 1
    assert "410" in failures[0]
    # the path of a webhook is what lets one write there
    assert "/closed" not in failures[0]
    assert len(mails.received) == 1


def test_without_a_mail_server_the_log_says_what_to_set(settings: Settings) -> None:
    [failure] = send(settings, alert(settings, "failed", "meters", "r", "it failed"), ["team@example.org"])
    assert "TIDEMARK_SMTP" in failure


def test_a_line_break_in_a_run_id_makes_no_header(told: Settings, mails: Any) -> None:
    assert (
        send(told, alert(told, "failed", "meters", "r\nBcc: all@example.org", "it failed"), ["team@example.org"]) == []
    )
    assert mails.received[0]["Bcc"] is None


@pytest.mark.parametrize(("run_type", "times"), [("scheduled", 1), ("manual", 0), ("backfill", 0)])
def test_a_late_run_is_told_of_if_it_was_due(told: Settings, hook: Any, run_type: str, times: int) -> None:
    context = {
        "dag_run": {**LATE_RUN, "run_type": run_type},
        "deadline": {"deadline_time": "2024-01-03 02:00:00+00:00"},
    }
    asyncio.run(tell_late(context=context, source="meters", recipients=[url(hook)]))
    assert [(each["event"], "2024-01-03 02:00" in each["message"]) for each in hook.received] == [
        ("late", True)
    ] * times


def test_a_failed_run_is_told_of_with_its_task(told: Settings, hook: Any) -> None:
    notifier = FailureNotifier("meters", [url(hook)])
    notifier({"run_id": "scheduled__1", "ti": SimpleNamespace(task_id="seal"), "dag": None})
    [document] = hook.received
    assert (document["event"], document["source"]) == ("failed", "meters")
    assert "failed at seal" in document["message"]


@pytest.mark.parametrize(
    ("task", "published_by", "said"),
    [
        ("seal", "earlier", "failed at seal; published tables read as before"),
        ("publish", "earlier", "failed at publish; published tables read as before"),
        # the marts come after the commit
        (
            "publish",
            "scheduled__1",
            "failed at publish; its rows are published, but marts or notes after them are not whole",
        ),
        ("publish", None, "failed at publish; the run's page says whether its rows are published"),
    ],
)
def test_a_failure_says_whether_the_run_has_published(
    told: Settings, hook: Any, monkeypatch: pytest.MonkeyPatch, task: str, published_by: str | None, said: str
) -> None:
    def load(*_: Any) -> Publication:
        if published_by is None:
            raise OSError("away")
        return Publication(0, 0, 0, run_id=published_by)

    monkeypatch.setattr(publication, "load", load)
    notifier = FailureNotifier("flights", [url(hook)])
    notifier({"run_id": "scheduled__1", "ti": SimpleNamespace(task_id=task), "dag": None})
    assert said in hook.received[0]["message"]


def test_a_failed_maintenance_is_told_of_with_what_it_was_about_and_its_page(told: Settings, hook: Any) -> None:
    for source, about in (("flights", "flights"), (None, "the installation")):
        notifier = MaintenanceNotifier(source, [url(hook)])
        notifier({"run_id": "scheduled__1", "ti": SimpleNamespace(task_id="t"), "dag": None})
        document = hook.received.pop()
        assert (document["event"], document["source"]) == ("failed", "tidemark-maintenance")
        assert f"The maintenance of {about} failed (run scheduled__1)" in document["message"]
        assert document["page"] == f"{told.airflow_url}/dags/tidemark-maintenance/runs/scheduled__1"


def test_checks_that_warn_are_those_of_the_runs_newest_attempt(tmp_path: Any) -> None:
    common = {"source": "meters", "run_id": "r", "gate": "bronze", "observed": "3 rows"}
    rows = [
        {**common, "token": 1, "name": "mended", "verdict": "warned"},
        {**common, "token": 2, "name": "mended", "verdict": "passed"},
        {**common, "token": 2, "name": "load_is_sane", "verdict": "warned"},
        {**common, "token": 2, "name": "other_run", "verdict": "warned", "run_id": "q"},
    ]
    write_deltalake(tmp_path / "quality.db" / "results", arrow_records(RESULTS, rows))
    assert warned_checks(str(tmp_path), "meters", "r") == ["load_is_sane (3 rows)"]
    assert warned_checks(str(tmp_path / "elsewhere"), "meters", "r") == []
