"""The way of a form to Airflow, and the page that shows what came of it."""

from __future__ import annotations

from urllib.parse import quote

from spark_jobs.errors import ParameterError
from spark_jobs.portal.actions.airflow import UserInAirflow
from spark_jobs.portal.actions.forms import Action, Values, airflow_request
from spark_jobs.sources import Source

UNPAUSE = "unpause"
"""The field of a form that unpauses the source's DAG."""


async def act(user: UserInAirflow, source: Source, action: Action, values: Values) -> tuple[str, ...]:
    """Ask Airflow for what a form says. Returns the parts of the name of the page that shows the outcome.

    Raises:
        ParameterError: the form is not filled in.
        ActionRefused: Airflow refuses it, such as where the user has no right.
    """
    request = airflow_request(action, source, values)
    if values.get(UNPAUSE) and action.dag is None:
        await user.ask("PATCH", f"dags/{quote(source.name, safe='')}", {"is_paused": False})
    answer = await user.ask("POST", request.path, request.body)
    if action.dag is None and "dag_run_id" in answer:
        return ("runs", source.name, answer["dag_run_id"])
    return ("activity", source.name)


async def answer_question(user: UserInAirflow, source: Source, values: Values) -> tuple[str, ...]:
    """Answer the question that a run of the source waits with. Returns the parts of the name of the run's page.

    Raises:
        ParameterError: the form names no run, stage or option.
        ActionRefused: Airflow refuses it, such as where somebody else has answered.
    """
    given = {name: values.get(name, [""])[0] for name in ("run", "stage", "option")}
    if not all(given.values()):
        raise ParameterError(
            expected="a run, a stage and an option",
            found=f"{given}",
            consequence="the question was not answered",
            next_step="open the run's page, and answer there",
        )
    run, stage = (quote(given[name], safe="") for name in ("run", "stage"))
    path = f"dags/{quote(source.name, safe='')}/dagRuns/{run}/taskInstances/{stage}/-1/hitlDetails"
    await user.ask("PATCH", path, {"chosen_options": [given["option"]], "params_input": {}})
    return ("runs", source.name, given["run"])
