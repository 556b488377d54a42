"""Alerts by e-mail or webhook: a run is late, has failed, found a drop empty, or has a check that warns.

Airflow calls `tell_late` in the triggerer when a deadline has passed. It calls `FailureNotifier` in the DAG processor
when a run has failed and all tries are used up. It calls `MaintenanceNotifier` when a task of the maintenance has
failed in the same way. A task sends the other alerts. A message that can't be sent is logged, and does not change the
run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import smtplib
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from email.message import EmailMessage
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from airflow.sdk import BaseNotifier

from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ConfigurationError
from spark_jobs.model import LAST, STAGES
from spark_jobs.sources import find_source

log = logging.getLogger(__name__)

Event = Literal["late", "failed", "empty", "warned"]
MAINTENANCE = "tidemark-maintenance"
"""The DAG of the maintenance; no source's name has a hyphen."""
TIMEOUT_S = 20.0
"""The seconds that each recipient's server has to answer."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An event of a run, with a sentence about it and the page that shows the run."""

    event: Event
    source: str
    run_id: str
    message: str
    page: str


def alert(settings: Settings, event: Event, source: str, run_id: str, message: str) -> Alert:
    """An alert about a run, with the URL of the run's page."""
    return Alert(event, source, run_id, message, settings.page_url("runs", source, run_id))


def send(settings: Settings, alert: Alert, recipients: Iterable[str]) -> list[str]:
    """Send an alert to each recipient. Returns, and logs, a sentence for each recipient to whom it could not be
    sent."""
    failures = []
    for recipient in recipients:
        try:
            if "://" in recipient:
                _post(recipient, alert)
            else:
                _mail(settings, recipient, alert)
        except Exception as failure:  # whatever it is, the other recipients must get the alert
            # a webhook's path is its secret
            named = (
                f"{urlsplit(recipient).scheme}://{urlsplit(recipient).hostname}" if "://" in recipient else recipient
            )
            failures.append(f"{named} was not told that {alert.source} is {alert.event}: {failure}")
            log.error("%s", failures[-1])
    return failures


def _post(url: str, alert: Alert) -> None:
    document = json.dumps(asdict(alert)).encode()
    request = Request(url, document, {"Content-Type": "application/json", "User-Agent": "tidemark"})
    with urlopen(request, timeout=TIMEOUT_S):
        pass


def _mail(settings: Settings, address: str, alert: Alert) -> None:
    if settings.smtp is None:
        raise ConfigurationError(
            expected="TIDEMARK_SMTP, the server that sends e-mail",
            found="none",
            consequence=f"{address} was not told",
            next_step="set it, such as smtp://user:password@mail.example.org:587, or notify a webhook",
        )
    mail = EmailMessage()
    mail["From"], mail["To"] = settings.smtp_from, address
    # a header must be one line, even if the run's name has several
    mail["Subject"] = " ".join(f"Tidemark: {alert.source} {alert.event} ({alert.run_id})".split())
    mail.set_content(f"{alert.message}\n\n{alert.page}\n")
    with _server(settings.smtp.get_secret_value()) as server:
        server.send_message(mail)


def _server(place: str) -> AbstractContextManager[smtplib.SMTP]:
    """A connection to the server at a URL: TLS with smtps, or as soon as the server offers it."""
    url = urlsplit(place)
    host, context = url.hostname or "localhost", ssl.create_default_context()
    server: smtplib.SMTP
    if url.scheme == "smtps":
        server = smtplib.SMTP_SSL(host, url.port or 465, timeout=TIMEOUT_S, context=context)
    else:
        server = smtplib.SMTP(host, url.port or 25, timeout=TIMEOUT_S)
        server.ehlo()
        if server.has_extn("starttls"):
            server.starttls(context=context)
            server.ehlo()
    if url.username:
        server.login(unquote(url.username), unquote(url.password or ""))
    return server


async def tell_late(*, context: Mapping[str, Any], source: str, recipients: Sequence[str]) -> None:
    """Send the alert of a late run. Airflow's triggerer calls this once the deadline of a run has passed, with the run
    as Airflow's API describes it. A run that somebody started has no due time, so there is no alert for it."""
    run = context["dag_run"]
    if run["run_type"] != "scheduled":
        return
    settings, due, run_id = load_settings(), context["deadline"]["deadline_time"], run["dag_run_id"]
    message = f"Run {run_id} of {source} is late: it was due at {due}, and is {run['state']}."
    await asyncio.to_thread(send, settings, alert(settings, "late", source, run_id, message), recipients)


class FailureNotifier(BaseNotifier):
    """Sends an alert that a run failed: the task, and the state of the published rows."""

    def __init__(self, source: str, recipients: Sequence[str]) -> None:
        super().__init__()
        self.source = source
        self.recipients = list(recipients)

    def notify(self, context: Any) -> None:
        """Send the alert. Airflow's DAG processor calls this when a run has failed."""
        settings, run_id = load_settings(), str(context["run_id"])
        task = getattr(context.get("ti") or context.get("task_instance"), "task_id", None)
        at = f" at {task}" if task else ""
        state = _AS_BEFORE if task in STAGES and task != LAST else _state_of_rows(settings, self.source, run_id)
        message = f"Run {run_id} of {self.source} failed{at}; {state}. Its log says what to do."
        send(settings, alert(settings, "failed", self.source, run_id, message), self.recipients)


_AS_BEFORE = "published tables read as before"


def _state_of_rows(settings: Settings, source: str, run_id: str) -> str:
    """The state of the published rows after a failed run, in words. The run may have failed after its publication:
    names, marts and documents follow it."""
    from spark_jobs.storage.coordination import publication
    from spark_jobs.storage.lakes.stored_lake import StoredLake

    try:
        lake = StoredLake.at(settings.lake)
        current_publication = None if lake is None else publication.load(lake, find_source(settings.sources, source))
    except Exception as failure:  # the alert must be sent, whatever is wrong with the lake
        log.warning("what run %s of %s has published is not known: %s", run_id, source, failure)
        current_publication = None
    if current_publication is None:
        return "the run's page says whether its rows are published"
    return (
        "its rows are published, but marts or notes after them are not whole"
        if current_publication.run_id == run_id
        else _AS_BEFORE
    )


class MaintenanceNotifier(BaseNotifier):
    """Sends an alert that maintenance failed: that of a source, or of the installation if the source is None.
    `dag_id`: the DAG of the task."""

    def __init__(self, source: str | None, recipients: Sequence[str], dag_id: str = MAINTENANCE) -> None:
        super().__init__()
        self.source = source
        self.recipients = list(recipients)
        self.dag_id = dag_id

    def notify(self, context: Any) -> None:
        """Send the alert. Airflow calls this when a task of the maintenance has failed and all tries are used up."""
        settings, run_id = load_settings(), str(context["run_id"])
        about = self.source or "the installation"
        message = (
            f"The maintenance of {about} failed (run {run_id}); {_AS_BEFORE}. Its task's log says which steps failed,"
            " and what to do."
        )
        page = f"{settings.airflow_page}/dags/{self.dag_id}/runs/{quote(run_id, safe='')}"
        send(settings, Alert("failed", self.dag_id, run_id, message, page), self.recipients)
