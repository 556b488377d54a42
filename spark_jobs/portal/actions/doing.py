"""The way of a form to Airflow, and the page that shows what came of it."""

from __future__ import annotations

from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.portal.actions.airflow import UserInAirflow, api_path, open_question, question_path
from spark_jobs.portal.actions.forms import Action, Values, airflow_request
from spark_jobs.sources import Source

UNPAUSE = "unpause"
"""The field of a form that unpauses the source's DAG."""


class QuestionGone(TidemarkError):
    """The question that a page showed has been answered, or its task asks another one now."""

    code = "question_gone"


async def act(user: UserInAirflow, source: Source, action: Action, values: Values) -> tuple[str, ...]:
    """Ask Airflow for what a form says. Returns the parts of the name of the page that shows the outcome.

    Raises:
        ParameterError: the form is not filled in.
        ActionRefused: Airflow refuses it, such as where the user has no right.
    """
    request = airflow_request(action, source, values)
    answer = await user.ask("POST", request.path, request.body)
    if values.get(UNPAUSE) and action.dag is None:
        # not before the run is there: an unpaused DAG also starts runs by itself
        waits = "what was started waits until somebody unpauses the DAG"
        await user.ask("PATCH", api_path("dags", source.name), {"is_paused": False}, refused=waits)
    if action.dag is None and "dag_run_id" in answer:
        return ("runs", source.name, answer["dag_run_id"])
    return ("activity", source.name)


async def answer_question(user: UserInAirflow, source: Source, values: Values) -> tuple[str, ...]:
    """Answer the question that a run of the source waits with. Returns the parts of the name of the run's page.

    Raises:
        ParameterError: the form names no run, stage, question or option.
        QuestionGone: the stage does not ask what the page showed.
        ActionRefused: Airflow refuses it, such as where somebody else has answered.
    """
    given = {name: values.get(name, [""])[0] for name in ("run", "stage", "attempt", "option")}
    if not all(given.values()):
        raise ParameterError(
            expected="a run, a stage, its attempt and an option",
            found=f"{given}",
            consequence="the question was not answered",
            next_step="open the run's page, and answer there",
        )
    run, stage = given["run"], given["stage"]
    path = question_path(source.name, run, stage)
    question = await open_question(user, source.name, run, stage)
    if question is None or question.attempt != given["attempt"]:
        raise QuestionGone(
            expected=f"the question that the page showed, of {stage} in run {run}",
            found="no open question" if question is None else "another question, of a later try",
            consequence="nothing was answered",
            next_step="open the run's page anew, and look at what it says now",
        )
    await user.ask("PATCH", path, {"chosen_options": [given["option"]], "params_input": {}})
    return ("runs", source.name, run)
