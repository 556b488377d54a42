"""Alerts: who is told, by e-mail or webhook, when a run is late, has failed, found a drop empty, or has a check that
warns.

Airflow calls: `tell_late` in the triggerer, for a deadline that passed; `FailureNotifier` in the DAG processor, for a
run that failed once all tries were used up; a task for the others. A message that can't be sent is logged, and changes
nothing about the run.
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
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from airflow.sdk import BaseNotifier

from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ConfigurationError

log = logging.getLogger(__name__)

Event = Literal["late", "failed", "empty", "warned"]
TIMEOUT_S = 20.0
"""For each recipient: a server that does not answer holds nobody up for longer."""


@dataclass(frozen=True, slots=True)
class Alert:
    """What happened to which run, in a sentence, and the page that shows it."""

    event: Event
    source: str
    run_id: str
    message: str
    page: str


def alert(settings: Settings, event: Event, source: str, run_id: str, message: str) -> Alert:
    """An alert about a run, with its page."""
    return Alert(event, source, run_id, message, settings.page_url("runs", source, run_id))


def send(settings: Settings, alert: Alert, recipients: Iterable[str]) -> list[str]:
    """Tell each recipient; returns why it failed, for each that could not be told, and logs it."""
    failures = []
    for recipient in recipients:
        try:
            if "://" in recipient:
                _post(recipient, alert)
            else:
                _mail(settings, recipient, alert)
        except Exception as failure:  # whatever it is, the others are to be told
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
    # a header is one line, whatever the run is called
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
    """Airflow's triggerer calls this once the deadline of a run has passed. Of a run that somebody started nobody said
    when it is due."""
    run = context["dag_run"]
    if run["run_type"] != "scheduled":
        return
    settings, due = load_settings(), context["deadline"]["deadline_time"]
    message = f"Run {run['run_id']} of {source} is late: it was due at {due}, and is {run['state']}."
    await asyncio.to_thread(send, settings, alert(settings, "late", source, run["run_id"], message), recipients)


class FailureNotifier(BaseNotifier):
    """Tells that a run failed, and at which task."""

    def __init__(self, source: str, recipients: Sequence[str]) -> None:
        super().__init__()
        self.source = source
        self.recipients = list(recipients)

    def notify(self, context: Any) -> None:
        """Airflow's DAG processor calls this when a run has failed."""
        settings, run_id = load_settings(), str(context["run_id"])
        task = getattr(context.get("ti") or context.get("task_instance"), "task_id", None)
        at = f" at {task}" if task else ""
        message = f"Run {run_id} of {self.source} failed{at}; nothing of it is published. Its log says what to do."
        send(settings, alert(settings, "failed", self.source, run_id, message), self.recipients)
