"""The order of the portal's requests to Airflow: what is asked before, and what is not asked after a refusal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from spark_jobs.config import Settings
from spark_jobs.portal.actions.airflow import ActionRefused, UserInAirflow
from spark_jobs.portal.actions.doing import QuestionGone, act, answer_question
from spark_jobs.portal.actions.forms import BY_NAME
from spark_jobs.sources import Source, load_source
from tests.jobs.harness import write_source

ANSWER = {"run": ["r"], "stage": ["land"], "attempt": ["second"], "option": ["Approve"]}


@pytest.fixture(scope="module")
def meters(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return load_source(write_source(Settings(home=tmp_path_factory.mktemp("home"))).sources / "meters.yml")


class Api:
    """A server in the place of Airflow's API: it asks one question, and starts no runs. `changes`: what was written."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []
        self.question: dict[str, Any] = {
            "task_instance": {"id": "second"},
            "subject": "?",
            "body": "",
            "options": ["Approve"],
        }
        self.app = Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "POST", "PATCH"])])

    async def answer(self, request: Request) -> JSONResponse:
        if request.method == "GET":
            return JSONResponse(self.question)
        if request.method == "POST":
            return JSONResponse({"detail": "no"}, 403)
        self.changes.append((request.method, request.url.path))
        self.question["response_received"] = True
        return JSONResponse({})

    def as_user(self) -> UserInAirflow:
        return UserInAirflow(self.app, "a token")


def test_an_answer_is_for_the_question_that_the_page_showed(meters: Source) -> None:
    api = Api()

    def reply(**others: Any) -> tuple[str, ...]:
        return asyncio.run(answer_question(api.as_user(), meters, ANSWER | others))

    with pytest.raises(QuestionGone, match="of a later try"):
        reply(attempt=["first"])
    assert api.changes == []
    assert reply() == ("runs", "meters", "r")
    assert api.changes == [("PATCH", "/api/v2/dags/meters/dagRuns/r/taskInstances/land/-1/hitlDetails")]
    with pytest.raises(QuestionGone, match="no open question"):
        reply()
    assert len(api.changes) == 1


def test_a_run_that_is_refused_leaves_its_dag_paused(meters: Source) -> None:
    api, form = Api(), {"from": ["2024-01-01"], "because": ["?"], "unpause": ["on"]}
    with pytest.raises(ActionRefused, match="nothing was changed"):
        asyncio.run(act(api.as_user(), meters, BY_NAME["run"], form))
    assert api.changes == []
