"""The work of a task of the DAG `tidemark-actions`: close records in quarantine, audit a source, pin its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from _failures import log_failures
from _requests import asked_by
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from structlog.contextvars import bind_contextvars

from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.sources import Source, find_source
from spark_jobs.sources.dag_runs import FAILURE, drops_named
from spark_jobs.sources.quantities import parse_instant


class ActionOperator(BaseOperator):
    """Does what the run's parameters ask for. It returns a sentence about what was done.

    The parameters are those of the DAG `tidemark-actions`; `ACTIONS_BY_NAME` has the actions.
    """

    ui_color = "#fef3c7"

    def execute(self, context: Any) -> str:
        """Called by Airflow in the task's own process."""
        from spark_jobs.session import working_session

        params, settings = context["params"], load_settings()
        with log_failures(self.log, partial(context["ti"].xcom_push, FAILURE)):
            name, source = params["action"], find_source(settings.sources, params["source"])
            bind_contextvars(run=context["run_id"], source=source.name, action=name)
            with working_session(settings, f"{source.name}:{name}") as session:
                sentence = ACTIONS_BY_NAME[name](settings, source, session, params, asked_by(context["dag_run"]))
        self.log.info("%s", sentence)
        return sentence

    def on_kill(self) -> None:
        """Airflow calls this in a signal handler: unwind `execute`, which interrupts its Spark session."""
        raise KeyboardInterrupt("the action was ended")


def _dismiss(settings: Settings, source: Source, session: Any, params: Mapping[str, Any], person: str) -> str:
    """Close open records of a file or a rule; of all drops, or of those from `from` to `to`."""
    from spark_jobs.plans.replay import Asked, dismiss

    file, rule, first = params.get("file"), params.get("rule"), params.get("from")
    if not (file or rule or first):
        raise ParameterError(
            expected="`file`, `rule` or `from`",
            found="none of them",
            consequence="no record was closed",
            next_step="say which records to close",
        )
    asked = Asked(_drops(source, first, params.get("to")), file or None, rule or None)
    closed = dismiss(session, source, asked, str(params.get("because") or ""), person)
    total = sum(group["records"] for group in closed)
    return f"{total:,} records of {len({group['file'] for group in closed}):,} files are dismissed"


def _audit(settings: Settings, source: Source, session: Any, params: Mapping[str, Any], person: str) -> str:
    """Prove that stored rows are those of the files: of all drops, or of those from `from` on."""
    from spark_jobs.audit.audit import audit
    from spark_jobs.gates.verdicts import verdict_lines

    drops = _drops(source, params.get("from"), None)
    audited = audit(settings, source, session, since=0 if drops is None else drops.start)
    if audited.failed:
        lines = "".join(verdict_lines(verdict) for verdict in audited.failed)
        raise AirflowFailException(f"{len(audited.failed)} of {len(audited.verdicts)} invariants do not hold:\n{lines}")
    return f"all {len(audited.verdicts)} invariants hold ({audited.run_id}, {audited.seconds} s)"


def _pin(settings: Settings, source: Source, session: Any, params: Mapping[str, Any], person: str) -> str:
    """Copy the source's published tables, as known at its newest time or at the time `at`."""
    from spark_jobs.storage.lakes.spark_lake import SparkLake
    from spark_jobs.upkeep.pins import make_pin

    name, at = str(params.get("name") or ""), _instant(params.get("at"))
    pin = make_pin(SparkLake(session), [source], name, at)
    time = f"{pin.times[source.name]:%Y-%m-%d %H:%M:%S} UTC"
    return f"pins.{', pins.'.join(pin.tables)} are copies of {source.name} as known at {time}"


def _instant(text: str | None) -> int | None:
    """A time in microseconds; None if there is no text. ParameterError: the text is no time."""
    try:
        return parse_instant(text) if text else None
    except (ValueError, OverflowError):
        raise ParameterError(
            expected="a time such as 2024-01-31T18:00:00Z",
            found=repr(text),
            consequence="nothing was pinned",
            next_step="start it again with such a time in `at`, or with none for the newest",
        ) from None


ACTIONS_BY_NAME: dict[str, Callable[[Settings, Source, Any, Mapping[str, Any], str], str]] = {
    "dismiss": _dismiss,
    "audit": _audit,
    "pin": _pin,
}
"""The functions that do an action, by the action's name."""


def _drops(source: Source, first: str | None, last: str | None) -> range | None:
    """The drops from `first` to `last`, both included; None if none is named. `last`: by default the first alone.

    Raises:
        ParameterError: a text names no drop of the source.
    """
    if not first:
        if last:
            raise ParameterError(
                expected="`from` beside `to`",
                found=f"`to` alone, {last}",
                consequence="nothing was done: all drops would have been meant",
                next_step="set the first drop, too",
            )
        return None
    return drops_named(source.drops, first, last or first)
