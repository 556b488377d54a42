"""The actions of the portal: their forms, and the request to Airflow that each form becomes.

Runs of drops, replays and retractions are runs of the source's own DAG. Other actions are runs of `tidemark-actions`.
So Airflow's rights decide who may act, its log has who did what, and its scheduler does the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from unicodedata import category

from spark_jobs.errors import ParameterError
from spark_jobs.model import ACTIONS
from spark_jobs.sources import Source
from spark_jobs.sources.dag_runs import drops_named
from spark_jobs.sources.quantities import instant_at

Values = Mapping[str, Sequence[str]]
"""The values of a form, by the name of the field."""
Body = dict[str, Any]

CLOCKS_DIFFER = timedelta(days=1)
"""The time by which drops may begin after now."""
MOST_CHARACTERS = 900
"""The most characters of a field: Airflow's note of a run, which has the reason and the action's title, takes 1,000."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form.

    `kind`: `drop` is the start of a drop, `switch` is on or off, and `names` may have several values, of which those in
    the page's address are offered.
    """

    name: str
    label: str
    kind: Literal["text", "drop", "switch", "names"] = "text"
    is_needed: bool = False
    is_on: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """An action on a source: its title, its consequences, its form, and the DAG whose run does it (None: the source's).

    `always`: parameters of the run that no field sets.
    """

    name: str
    title: str
    effect: str
    fields: tuple[Field, ...]
    dag: str | None = None
    always: tuple[str, ...] = ()


_FROM = Field("from", "first drop", "drop", is_needed=True)
_TO = Field("to", "last drop, included (empty: the first alone)", "drop")
_WHY = Field("because", "why", is_needed=True)
_FILE = Field("file", "only this file, relative to the landing directory")
_RULE = Field("rule", "only records that this rule rejected")
_ACCEPT = Field("accept_definition", "accept the changed source file: recompute what it affects", "switch")
_PLAN = Field("plan", "show the changes first, and wait for an approval", "switch", is_on=True)

ALL = (
    Action(
        "run",
        "Run drops",
        "One run lands the files of these drops that are new or changed, and publishes all of them at one time.",
        (
            _FROM,
            _TO,
            _PLAN,
            _ACCEPT,
            Field("pass_gap", "pass drops that were never run: they can't be read as of their time any more", "switch"),
            Field("override", "checks that may fail in this run", "names"),
            _WHY,
        ),
    ),
    Action(
        "backfill",
        "Run each drop by itself",
        "Airflow's backfill runs the drops one after another, the earliest first, and publishes each at its own time.",
        (
            Field("from", "first drop", "drop", is_needed=True),
            Field("to", "last drop, included", "drop", is_needed=True),
            Field("again", "also drops that a run of Airflow has done already", "switch"),
            _ACCEPT,
            _WHY,
        ),
    ),
    Action(
        "replay",
        "Read records in quarantine again",
        "The files of these drops that have open records are read again. A record that can be read now lands once, and"
        " leaves quarantine. Mend the file or the source file first.",
        (_FROM, _TO, _FILE, _RULE, _PLAN, _ACCEPT, _WHY),
        always=("replay",),
    ),
    Action(
        "retract",
        "Take rows back",
        "The rows that these drops, or the file, landed are taken back, and the difference is published. The files stay"
        " in their folders. The run shows all changes, and waits for an approval.",
        (_FROM, _TO, _FILE, _WHY),
        always=("retract", "plan"),
    ),
    Action(
        "dismiss",
        "Close records in quarantine",
        "The open records are closed with your reason. They are kept and count as before, and are open again once their"
        " file lands with other bytes.",
        (Field("from", "first drop (empty: all drops)", "drop"), _TO, _FILE, _RULE, _WHY),
        dag=ACTIONS,
    ),
    Action(
        "audit",
        "Audit now",
        "The audit counts the rows of each file, reads some files again, and computes windows and states anew. It"
        " changes nothing; runs of the source wait meanwhile.",
        (Field("from", "first drop whose files are looked at (empty: all)", "drop"), _WHY),
        dag=ACTIONS,
    ),
    Action(
        "pin",
        "Pin the published tables",
        "The published tables are copied to pins.<name>__<table>. The copies stay when retention removes what they"
        " were made of.",
        (
            Field("name", "name of the pin: lower-case letters, digits and _", is_needed=True),
            Field("at", "as known at this visible time (empty: the newest)"),
            _WHY,
        ),
        dag=ACTIONS,
    ),
)
BY_NAME = {action.name: action for action in ALL}
"""The actions, by name."""


@dataclass(frozen=True, slots=True)
class AirflowRequest:
    """A request to Airflow's REST API: the path below `/api/v2`, and the body of the POST."""

    path: str
    body: Body


def airflow_request(action: Action, source: Source, values: Values) -> AirflowRequest:
    """The request that a form becomes.

    Raises:
        ParameterError: a field that is needed is empty, or a text names no drop.
    """
    given = _values_of_fields(action, values)
    _check_choice(action, given)
    drops = None
    if given.get("from"):
        drops = drops_named(source.drops, given["from"], given.get("to") or given["from"])
        _check_begun(source, drops)
    if action.name == "backfill":
        assert drops is not None  # its fields are needed
        return _backfill(source, drops, given)
    if drops is not None:
        # a day may be written as a time, which Airflow does not take for a source with drops of days
        given["from"] = source.drops.label(drops.start)
        given["to"] = source.drops.label(drops.stop - 1) if given.get("to") else ""
    conf = {name: value for name, value in given.items() if value} | dict.fromkeys(action.always, True)
    if action.dag is not None:
        conf |= {"action": action.name, "source": source.name}
    body = {"logical_date": None, "conf": conf, "note": f"{action.title}: {given['because']}"}
    return AirflowRequest(f"dags/{action.dag or source.name}/dagRuns", body)


def _check_choice(action: Action, given: Mapping[str, Any]) -> None:
    """Refuse a form that would do more than it says: a last drop without a first one, records without a choice."""
    names = {field.name for field in action.fields}
    if given.get("to") and not given.get("from"):
        raise _refusal("the first drop beside the last one", f"the last drop alone, {given['to']}", "fill in the first")
    if action.name == "dismiss" and not any(given[name] for name in names - {"to", "because"}):
        raise _refusal("a first drop, a file or a rule", "none of them", "say which records to close")


def _check_begun(source: Source, drops: range) -> None:
    """Refuse drops of the future: a wrong digit in a year would plan thousands of them for a long time."""
    last, now = drops.stop - 1, datetime.now(UTC)
    if instant_at(source.drops.start(last)) > now + CLOCKS_DIFFER:
        raise _refusal(f"drops that have begun by now, {now:%Y-%m-%d}", source.drops.label(last), "correct the date")


def _refusal(expected: str, finding: str, next_step: str) -> ParameterError:
    return ParameterError(
        expected=expected,
        found=finding,
        consequence="nothing was asked of Airflow",
        next_step=f"go back, and {next_step}",
    )


def _backfill(source: Source, drops: range, given: Mapping[str, Any]) -> AirflowRequest:
    starts = [instant_at(source.drops.start(number)).isoformat() for number in (drops.start, drops.stop - 1)]
    conf = {"because": given["because"], **({"accept_definition": True} if given["accept_definition"] else {})}
    body = {
        "dag_id": source.name,
        "from_date": starts[0],
        "to_date": starts[1],
        "dag_run_conf": conf,
        "reprocess_behavior": "completed" if given["again"] else "failed",
        "max_active_runs": 1,
    }
    return AirflowRequest("backfills", body)


def _check_text(field: Field, text: str) -> None:
    """Refuse a text that Airflow or its database refuse without saying what to do."""
    expected = f"up to {MOST_CHARACTERS} characters in the field `{field.label}`, and no control characters"
    if len(text) > MOST_CHARACTERS:
        raise _refusal(expected, f"{len(text):,} characters", "shorten it")
    controls = sorted({repr(character) for character in text if category(character) == "Cc"})
    if controls:
        raise _refusal(expected, ", ".join(controls), "remove them")


def _values_of_fields(action: Action, values: Values) -> dict[str, Any]:
    """The value of each field: a text, a list of names, or true."""
    given: dict[str, Any] = {}
    for field in action.fields:
        texts = [text.strip() for text in values.get(field.name, ()) if text.strip()]
        if field.is_needed and not texts:
            raise _refusal(f"a text in the field `{field.label}`", "none", "fill it in")
        for text in texts:
            _check_text(field, text)
        first = texts[0] if texts else ""
        given[field.name] = {"switch": bool(texts), "names": texts}.get(field.kind, first)
    return given
