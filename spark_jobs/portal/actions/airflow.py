"""Airflow's REST API in the name of the user who looks at a page, and what pages show of its runs.

The requests stay in the process of Airflow's API server. They carry a token of the user, so that Airflow checks the
user's rights and logs the user's name, as for requests from outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx
from markdown_it import MarkdownIt

from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.model import ACTIONS
from spark_jobs.portal.actions.forms import BY_NAME, MOST_CHARACTERS
from spark_jobs.sources.dag_runs import FAILURE

UNDER_WAY = ("queued", "running")
"""The states of a run that has not ended."""
FAILED = "failed"
"""The state of a run or a task that failed."""
AWAITS = "awaiting_input"
"""The state of a task that waits for a person's answer."""
ACT = "act"
"""The task of the DAG of actions."""
LISTED_RUNS = 30
"""The newest actions of a source that its page lists."""


class ActionRefused(TidemarkError):
    """Airflow refused what the user asked for. Facts: `status`, `path`."""

    code = "action_refused"


def api_path(*parts: str) -> str:
    """The path below `/api/v2` with these parts.

    Raises:
        ParameterError: a part would lead to another path. A `/` cannot be escaped: routes are found by decoded paths.
    """
    for part in parts:
        if part in ("", ".", "..") or "/" in part or not part.isprintable():
            raise ParameterError(
                expected="a name of a run or stage, without `/` and control characters",
                found=repr(part[:100]),
                consequence="Airflow was not asked",
                next_step="open the run's page by its link on the page of its source",
            )
    return "/".join(quote(part, safe="") for part in parts)


class UserInAirflow:
    """Airflow's REST API as one user sees it.

    Args:
        app: Airflow's own application (ASGI).
        token: a token of the user's login.
    """

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._headers = {"Authorization": f"Bearer {token}"}

    async def ask(
        self, method: str, path: str, body: Any = None, *, refused: str = "nothing was changed", **parameters: Any
    ) -> Any:
        """The JSON of the answer to a request below `/api/v2`; None if it is empty.

        Raises:
            ActionRefused: Airflow does not accept it; `refused` is what follows from that.
        """
        transport = httpx.ASGITransport(app=self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow", headers=self._headers) as client:
            answer = await client.request(method, f"/api/v2/{path}", json=body, params=parameters)
        if answer.is_success:
            return answer.json() if answer.content else None
        raise ActionRefused(
            expected=f"{method} {path} to be accepted",
            found=f"status {answer.status_code}: {_reason(answer)}",
            consequence=refused,
            next_step=_NEXT_STEPS.get(answer.status_code, "read the log of Airflow's API server"),
            status=answer.status_code,
            path=path,
        )

    async def ask_if_there(self, path: str, **parameters: Any) -> Any:
        """The JSON of a GET; None if there is no such thing, or the user may not see it."""
        try:
            return await self.ask("GET", path, **parameters)
        except ActionRefused as refusal:
            if refusal.facts["status"] in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
                return None
            raise


_NEXT_STEPS: dict[int, str] = {
    HTTPStatus.FORBIDDEN: "ask whoever gives rights in Airflow for the right to start runs of this DAG",
    HTTPStatus.NOT_FOUND: "wait until Airflow has read the DAG of the source, some seconds after its file is new",
    HTTPStatus.CONFLICT: "look at the runs that are on their way; somebody else may have answered or started it",
}


def _reason(answer: httpx.Response) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return answer.text[:400]
    return str(detail)[:400]


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a task asks before its run goes on. `body` is HTML, made of Markdown in which HTML is text.

    `attempt`: the identity of the try of the task that asks; a later try asks anew, with a plan of its own.
    """

    attempt: str
    stage: str
    subject: str
    body: str
    options: Sequence[str]


@dataclass(frozen=True, slots=True)
class AirflowRun:
    """A run in Airflow: who asked for it and why, its state, and the states of its tasks.

    `what`: the action, in words. `question`: the question that it waits for an answer to. `failure`: the error of the
    task that failed; empty if none did, or it was killed.
    """

    run_id: str
    dag: str
    what: str
    state: str
    asked_by: str
    because: str
    started: datetime | None
    ended: datetime | None
    tasks: Mapping[str, str]
    question: Question | None = None
    failure: str = ""

    @property
    def is_under_way(self) -> bool:
        """True if it has not ended."""
        return self.state in UNDER_WAY

    @property
    def is_of_source(self) -> bool:
        """True if it is a run of a source's own DAG, which has a page."""
        return self.dag != ACTIONS


async def airflow_run(user: UserInAirflow, dag: str, run_id: str) -> AirflowRun | None:
    """A run of a DAG, with its tasks, and its question if it waits for an answer; None if Airflow has no such run."""
    try:
        path = api_path("dags", dag, "dagRuns", run_id)
    except ParameterError:
        return None
    run = await user.ask_if_there(path)
    if run is None:
        return None
    listed = (await user.ask_if_there(f"{path}/taskInstances") or {"task_instances": []})["task_instances"]
    tasks = {task["task_id"]: task["state"] or "none" for task in listed}
    waiting = next((name for name, state in tasks.items() if state == AWAITS), None)
    question = None if waiting is None else await open_question(user, dag, run_id, waiting)
    failed = next((name for name, state in tasks.items() if state == FAILED), None)
    failure = "" if failed is None else await _failure(user, dag, run_id, failed)
    return replace(_run(run, tasks, question), failure=failure)


async def _failure(user: UserInAirflow, dag: str, run_id: str, task: str) -> str:
    """The error of a task that failed, as `_failures.log_failures` keeps it; empty if it kept none."""
    kept = await user.ask_if_there(
        api_path("dags", dag, "dagRuns", run_id, "taskInstances", task, "xcomEntries", FAILURE)
    )
    return "" if kept is None else f"{task}: {kept['value']}"


def question_path(dag: str, run_id: str, stage: str) -> str:
    """The path of the question of a stage. Raises `ParameterError` as `api_path` does."""
    return api_path("dags", dag, "dagRuns", run_id, "taskInstances", stage, "-1", "hitlDetails")


async def open_question(user: UserInAirflow, dag: str, run_id: str, stage: str) -> Question | None:
    """The question of a stage that nobody has answered; None if there is none."""
    detail = await user.ask_if_there(question_path(dag, run_id, stage))
    if detail is None or detail.get("response_received"):
        return None
    body = html_of(detail["body"] or "")
    return Question(detail["task_instance"]["id"], stage, detail["subject"], body, detail["options"])


async def actions_of(user: UserInAirflow, source: str, states: Sequence[str] = ()) -> list[AirflowRun]:
    """The newest runs of a source that people have started, and the newest other actions on it, the newest first.

    `states`: only runs in these states; by default in any.
    """
    newest = {"order_by": "-id", "state": list(states)}
    of_source = await user.ask_if_there(
        api_path("dags", source, "dagRuns"), run_type=["manual", "backfill"], limit=LISTED_RUNS, **newest
    )
    others = await user.ask_if_there(api_path("dags", ACTIONS, "dagRuns"), limit=100, **newest)
    runs = [*((of_source or {}).get("dag_runs", [])), *_about((others or {}).get("dag_runs", []), source)]
    runs.sort(key=lambda run: run["queued_at"] or run["run_after"], reverse=True)
    listed = [_run(run, {}, None) for run in runs[:LISTED_RUNS]]
    # these runs have no page of their own that would say it
    failed = [run for run in listed if run.state == FAILED and not run.is_of_source]
    failures = {run.run_id: await _failure(user, run.dag, run.run_id, ACT) for run in failed}
    return [replace(run, failure=failures.get(run.run_id, "")) for run in listed]


def _about(runs: Sequence[Mapping[str, Any]], source: str) -> list[Mapping[str, Any]]:
    return [run for run in runs if (run["conf"] or {}).get("source") == source]


async def is_paused(user: UserInAirflow, dag: str) -> bool:
    """True if runs of the DAG do not begin; also where Airflow does not have it."""
    answer = await user.ask_if_there(api_path("dags", dag))
    return answer is None or bool(answer["is_paused"])


def _run(run: Mapping[str, Any], tasks: Mapping[str, str], question: Question | None) -> AirflowRun:
    conf = run["conf"] or {}
    title, _, because = (run["note"] or "").partition(": ")
    times = [None if run[name] is None else datetime.fromisoformat(run[name]) for name in ("start_date", "end_date")]
    return AirflowRun(
        run["dag_run_id"],
        run["dag_id"],
        title if because else _what(run["run_type"], conf),
        run["state"],
        run["triggering_user_name"] or "",
        because or str(conf.get("because") or "")[:MOST_CHARACTERS],
        times[0],
        times[1],
        tasks,
        question,
    )


def _what(kind: str, conf: Mapping[str, Any]) -> str:
    """The action of a run that has no note of the portal's."""
    if kind == "backfill":
        return BY_NAME[kind].title
    # who starts a run in Airflow itself may give it any values
    name = str(conf.get("action") or next((each for each in ("replay", "retract") if conf.get(each)), "run"))
    return BY_NAME[name].title if name in BY_NAME else name[:MOST_CHARACTERS]


def html_of(text: str) -> str:
    """Markdown as HTML in which HTML is text, no link is made, and tables are tables."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink"])
    tokens = markdown.parse(text)
    for token in tokens:
        # the policy of pages forbids styles in them
        if token.attrs.pop("style", None) == "text-align:right":
            token.attrs["class"] = "num"
    html: str = markdown.renderer.render(tokens, markdown.options, {})
    return html


@dataclass(frozen=True, slots=True)
class AirflowFacts:
    """The facts of Airflow that a page shows beside the lake.

    `run`: the run of the page. `actions`: the runs that people have started, all or those under way. `is_paused`: true
    if runs of the source's DAG do not begin. `problem`: why Airflow has no answer; empty if it has.
    """

    run: AirflowRun | None = None
    actions: Sequence[AirflowRun] = ()
    is_paused: bool = False
    problem: str = ""


PAGES_WITH_FACTS = ("runs", "activity", "sources", "act")
"""The kinds of pages that show facts of Airflow."""


async def airflow_facts(user: UserInAirflow, kind: str, source: str, tail: str) -> AirflowFacts | None:
    """The facts for a page by the parts of its name; None for a page that shows none."""
    try:
        if kind == "runs":
            return AirflowFacts(run=await airflow_run(user, source, tail))
        if kind == "activity":
            return AirflowFacts(actions=await actions_of(user, source))
        if kind == "sources":
            return AirflowFacts(actions=await actions_of(user, source, UNDER_WAY))
        if kind == "act":
            return AirflowFacts(is_paused=await is_paused(user, source))
    except ActionRefused as refusal:
        return AirflowFacts(problem=str(refusal))
    return None
