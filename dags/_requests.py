"""The request of a run, from the parameters that a person has set and the plan that somebody has approved."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.sources import find_source
from spark_jobs.storage.descriptions.times import micros

if TYPE_CHECKING:
    from spark_jobs.jobs.request import Request

REPLAYED = "replayed_files"
"""The XCom of the first task of a run that replays: the files that it chose, for the other tasks."""


def asked_by(dag_run: Any) -> str:
    """The person who started the run; the account of this process where nobody did."""
    return str(dag_run.triggering_user_name or getpass.getuser())


def stage_request(
    params: Mapping[str, Any], person: str, planned: str | None, replay: frozenset[str] | None
) -> Request:
    """The request of a stage.

    `planned`: the base of an approved plan, which the run's first stage is given. `replay`: the files to read again;
    None unless the run replays.

    Raises:
        ParameterError: the run would replay and retract.
    """
    from spark_jobs.jobs.base import Base
    from spark_jobs.jobs.request import Request

    if params.get("replay") and params.get("retract"):
        raise ParameterError(
            expected="`replay` or `retract`",
            found="both",
            consequence="nothing was run",
            next_step="start a run for each, one after the other",
        )
    pass_gap, overridden = bool(params.get("pass_gap")), overrides(params)
    if planned is not None:
        base = Base.from_json(planned, "the approved plan")
        return Request.of_plan(base, pass_gap=pass_gap, overrides=overridden, asked_by=person)
    return Request(
        only_file=None if replay is not None else params.get("file") or None,
        retract=bool(params.get("retract")),
        replay=replay,
        # who approves a plan approves the definition that it was made on
        accept_definition=bool(params.get("plan") or params.get("accept_definition")),
        pass_gap=pass_gap,
        overrides=overridden,
        asked_by=person,
    )


def overrides(params: Mapping[str, Any]) -> dict[str, str]:
    """The checks that the trigger form lets fail, each with the reason."""
    return dict.fromkeys(params.get("override") or [], str(params.get("because") or ""))


def open_files(params: Mapping[str, Any], source: str, lo: datetime, hi: datetime) -> frozenset[str]:
    """The landed files of the drops `[lo, hi)` with open records in quarantine: those of `file` and `rule`, if set."""
    from spark_jobs.session import working_session

    with working_session(load_settings(), f"{source}:replay") as session:
        return open_files_in(session, params, source, lo, hi)


def open_files_in(session: Any, params: Mapping[str, Any], source: str, lo: datetime, hi: datetime) -> frozenset[str]:
    """`open_files`, through a session that is open."""
    from spark_jobs.plans.replay import Asked, replay_of

    checked = find_source(load_settings().sources, source)
    drops = checked.drops.drops_spanned(micros(lo), micros(hi))
    replay = replay_of(session, checked, Asked(drops, params.get("file") or None, params.get("rule") or None))
    return frozenset() if replay is None else replay.files
