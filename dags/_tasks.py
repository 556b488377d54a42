"""The work of a task: its drops, its turn on the source, its stage. Only a task's own process imports the jobs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from _drops import earlier_run, instants, named_drops, planned_files, run_interval
from _failures import log_failures
from _plans import APPROVE, answerer, approved_plan, note_plan, rejection
from _requests import REPLAYED, asked_by, open_files, stage_request
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from structlog.contextvars import bind_contextvars

from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.model import FIRST, LAST, is_backfill
from spark_jobs.sources import find_source
from spark_jobs.sources.dag_runs import FAILURE, REJECTED, takes_whole_drops
from spark_jobs.sources.drops import Schedule
from spark_jobs.sources.quantities import instant_at
from spark_jobs.step_lines import StepLines
from spark_jobs.storage.coordination.turns import Line, Turn, end_turn
from spark_jobs.storage.descriptions.times import micros

if TYPE_CHECKING:
    from spark_jobs.scheduling.alerts import Event

ASSETS = "tidemark://"
"""The beginning of the URI of each of our assets."""
DROPS_ASSET = "drops/"
"""The part that follows in the URI of an asset with a partition for each drop."""
SCHEDULED = "scheduled"
"""The type of runs that nobody started."""
CAUGHT_UP = "caught_up"
"""The XCom of the first task of a run that caught up: the start of its first drop, for the other tasks."""


class StageOperator(BaseOperator):
    """Runs one stage of a source for the run's drops; ending the task ends its Spark work.

    The first stage waits without a slot: for the answer of whoever asked for the plan first, for the files and sources
    that the source file says, and until it is the run's turn on the source. Returns the stage's summary. Refusals that
    would be the same the next time are not retried (see `_failures`).
    """

    ui_color = "#dbeafe"

    def __init__(
        self, *, source: str, drops: Schedule, notify: Sequence[str] = (), waits: bool = False, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self.source = source
        self.notify = list(notify)
        self.waits = waits
        self.drops = drops
        self._summary: dict[str, Any] | None = None

    def execute(self, context: Any, event: Any = None, planned: str | None = None) -> dict[str, Any]:
        """Called by Airflow in the task's own process, and again after each wait; `planned` is the base of a plan that
        somebody has approved."""
        return self._run(context, planned)

    def _run(self, context: Any, planned: str | None) -> dict[str, Any]:
        start_s, params = time.monotonic(), context["params"]
        with log_failures(self.log, partial(context["ti"].xcom_push, FAILURE)):
            lo, hi = run_interval(context["dag_run"], params, self.drops)
            self._bind_log(context, lo, hi)
            if params.get("dry_run"):
                self._tell_plan(lo, hi)
            if params.get("plan"):
                planned = self._follow_plan(context, lo, hi, planned)
            if self.task_id == FIRST and self.waits and takes_whole_drops(params):
                self._wait_for_inputs(context, self._caught_up(context, lo, hi), hi, planned)
            if self.task_id == FIRST:
                self._wait_for_turn(context, lo, hi, planned)
            lo = self._begin(context, lo, hi)
            from spark_jobs.jobs.stage import run_stage
            from spark_jobs.jobs.summaries import summary_table

            if self.task_id != FIRST:
                _preload_beside(self.task_id)
            imported = time.monotonic()
            replay = self._replayed_files(context, lo, hi, planned) if params.get("replay") else None
            request = stage_request(params, asked_by(context["dag_run"]), planned, replay)
            with StepLines(self.task_id, partial(self.log.info, "%s")) as report_step:
                summary = run_stage(
                    self.task_id,
                    source=self.source,
                    lo=lo,
                    hi=hi,
                    run_id=context["run_id"],
                    request=request,
                    report_step=report_step,
                )
        self._summary = summary
        self.log.info("%s of %s from %s to %s\n%s", self.task_id, self.source, lo, hi, summary_table(summary))
        self.log.info("%s", self._describe_time(context, start_s, imported, summary))
        if self.task_id == LAST:
            end_turn(_leases(), self.source, context["run_id"])
            self._tell_assets(context, lo, hi, summary)
            self._tell_warnings(context["run_id"])
        if summary.get("empty_drops"):
            brought = find_source(load_settings().sources, self.source).brought
            message = f"no {brought} for {', '.join(summary['empty_drops'])}: taken as empty"
            self.log.warning("%s", message)
            self._tell("empty", context["run_id"], message)
            if not summary["files"] and not summary["known_files"]:
                raise AirflowSkipException(message)
        return summary

    def answered(self, context: Any, event: Mapping[str, Any], planned: str) -> dict[str, Any]:
        """Called by Airflow once somebody has approved or rejected the plan, or nobody has for too long."""
        if event.get("chosen_options") != [APPROVE]:
            context["ti"].xcom_push(key=REJECTED, value=True)
            raise AirflowSkipException(rejection(event))
        self.log.info("the plan was approved by %s", answerer(event))
        note_plan(context["run_id"], planned)
        return self._run(context, planned)

    def _describe_time(self, context: Any, start_s: float, imported: float, summary: Mapping[str, Any]) -> str:
        """One line: the parts of the task's time, the longest part first."""
        now, work = time.monotonic(), float(summary.get("seconds", 0.0))
        since_start = (datetime.now(UTC) - context["ti"].start_date).total_seconds()
        spent = {
            "start and turn" if self.task_id == FIRST else "start": since_start - (now - start_s),
            "imports": imported - start_s,
            "session": now - imported - work,
            "work": work,
        }
        listed = ", ".join(f"{name} {seconds:.1f}" for name, seconds in spent.items())
        most = max(spent, key=lambda name: spent[name])
        return f"{self.task_id} took {sum(spent.values()):.1f} s, most of it {most} (seconds: {listed})"

    def get_openlineage_facets_on_start(self) -> Any:
        """Called by Airflow's provider of OpenLineage, which is at work where `TIDEMARK_LINEAGE` is set."""
        return self.get_openlineage_facets_on_complete(None)

    def get_openlineage_facets_on_complete(self, _task_instance: Any) -> Any:
        """The same once the task has ended, or failed: the tables that it reads and writes."""
        from spark_jobs.jobs.lineage import stage_lineage

        settings = load_settings()
        return stage_lineage(settings, find_source(settings.sources, self.source), self.task_id, self._summary)

    def on_kill(self) -> None:
        """Airflow calls this in a signal handler: unwind `run_stage`, which interrupts its Spark session."""
        raise KeyboardInterrupt(f"{self.task_id} of {self.source} was ended")

    def _bind_log(self, context: Any, lo: datetime, hi: datetime) -> None:
        """Add the run, the source, the stage and the drops to each line of the log, also to lines of called code."""
        bind_contextvars(
            run=context["run_id"], source=self.source, stage=self.task_id, drops=named_drops(self.drops, lo, hi)
        )

    def _tell_assets(self, context: Any, lo: datetime, hi: datetime, summary: Mapping[str, Any]) -> None:
        """Add the publication and its drops to the events of this run's assets."""
        landed = context["ti"].xcom_pull(task_ids=FIRST) or {}
        labels = [self.drops.label(n) for n in self.drops.drops_spanned(micros(lo), micros(hi))]
        extra = {
            "run_id": context["run_id"],
            "from": labels[0],
            "to": labels[-1],
            "lo": lo.isoformat(),
            "hi": hi.isoformat(),
            "rows": landed.get("rows", 0),
            "published": instant_at(summary["published_us"]).isoformat() if summary.get("published_us") else None,
            # an earlier try may have published, and failed afterwards
            "changed": summary.get("published_by") == context["run_id"],
            "page": load_settings().page_url("runs", self.source, context["run_id"]),
        }
        for asset in self.outlets:
            context["outlet_events"][asset].extra.update(extra)
            if asset.uri.startswith(f"{ASSETS}{DROPS_ASSET}"):
                context["outlet_events"][asset].add_partitions(labels)

    def _tell_warnings(self, run_id: str) -> None:
        """Tell of the run's checks that warn, as the table of results has them."""
        if not self.notify:
            return
        from spark_jobs.storage.lakes.results import warned_checks

        warned = warned_checks(load_settings().lake, self.source, run_id)
        if warned:
            self._tell("warned", run_id, f"checks of run {run_id} warn: {'; '.join(warned)}")

    def _tell(self, event: Event, run_id: str, message: str) -> None:
        if self.notify:
            from spark_jobs.scheduling.alerts import alert, send

            settings = load_settings()
            send(settings, alert(settings, event, self.source, run_id, message), self.notify)

    def _follow_plan(self, context: Any, lo: datetime, hi: datetime, planned: str | None) -> str | None:
        """The base of the approved plan in the first stage, which asks for the approval; None in the others, which end
        where the plan was rejected."""
        if self.task_id == FIRST:
            return planned or approved_plan(self.source, lo, hi, context)
        if context["ti"].xcom_pull(task_ids=FIRST, key=REJECTED):
            raise AirflowSkipException("the plan was rejected: nothing was done")
        return None

    def _replayed_files(self, context: Any, lo: datetime, hi: datetime, planned: str | None) -> frozenset[str]:
        """The files that a replay reads again: the first task chooses them, unless an approved plan names them."""
        if self.task_id != FIRST:
            return frozenset(context["ti"].xcom_pull(task_ids=FIRST, key=REPLAYED) or [])
        if planned is None:
            try:
                files = open_files(context["params"], self.source, lo, hi)
            except ParameterError:
                # an earlier try may have landed what it read, and failed afterwards
                if context["ti"].try_number == 1:
                    raise
                files = frozenset()
        else:
            files = frozenset(json.loads(planned)["replay"] or [])
        if not files:
            self.log.warning("no file has open records that were asked for: none is read again")
        context["ti"].xcom_push(key=REPLAYED, value=sorted(files))
        return files

    def _begin(self, context: Any, lo: datetime, hi: datetime) -> datetime:
        """The start of the first drop that the run takes: as the first task found it once it was the run's turn, so
        that all tasks take the same."""
        if context["dag_run"].run_type != SCHEDULED:
            return lo
        if self.task_id != FIRST:
            begun_us = context["ti"].xcom_pull(task_ids=FIRST, key=CAUGHT_UP)
            first_lo = lo if begun_us is None else instant_at(begun_us)
        else:
            first_lo = self._caught_up(context, lo, hi)
            if first_lo < lo:
                context["ti"].xcom_push(key=CAUGHT_UP, value=micros(first_lo))
        if first_lo < lo:
            self._bind_log(context, first_lo, hi)
            taken, scheduled = named_drops(self.drops, first_lo, hi), named_drops(self.drops, lo, hi)
            self.log.info("catches up: takes %s, since drops before %s were never run", taken, scheduled)
        return first_lo

    def _caught_up(self, context: Any, lo: datetime, hi: datetime) -> datetime:
        """The start of the first drop that the run would take now. A scheduled run takes what was left out before its
        own drop; who starts a run says which drops it has."""
        if context["dag_run"].run_type != SCHEDULED:
            return lo
        from spark_jobs.jobs.catching_up import drops_due

        settings, scheduled = load_settings(), self.drops.drops_spanned(micros(lo), micros(hi))
        due = drops_due(settings, find_source(settings.sources, self.source), scheduled)
        return instants(self.drops, due)[0]

    def _wait_for_inputs(self, context: Any, lo: datetime, hi: datetime, planned: str | None) -> None:
        from spark_jobs.scheduling.inputs import InputsTrigger, RunInputs

        arguments = {
            "source": self.source,
            "lo_us": micros(lo),
            "hi_us": micros(hi),
            "scheduled": context["dag_run"].run_type == SCHEDULED,
        }
        missing = RunInputs(**arguments).missing_input(datetime.now(UTC))
        if missing is not None:
            self.log.info("waits for %s", missing)
            self.defer(trigger=InputsTrigger(**arguments), method_name="execute", kwargs={"planned": planned})

    def _wait_for_turn(self, context: Any, lo: datetime, hi: datetime, planned: str | None) -> None:
        # not when DAGs are parsed: triggers bring what runs tasks along
        from spark_jobs.scheduling.trigger import DagRuns, TurnTrigger

        drops = self.drops
        first, last = (drops.seq_no_at(micros(time)) for time in (lo, hi - timedelta(microseconds=1)))
        named = named_drops(drops, lo, hi)
        run_id, leases = context["run_id"], _leases()
        goes_first = not is_backfill(run_id) and self._follows_on(range(first, last + 1))
        turn = Turn(run_id, micros(lo), named, staged=True, first=goes_first)
        before = earlier_run(context, lo, drops)
        whom = Line(leases, self.source, turn, DagRuns(self.source, before)).step()
        if whom is None:
            return
        self.log.info("waits for %s", whom)
        waiting = TurnTrigger(
            leases=str(leases),
            dag_id=self.source,
            run_id=run_id,
            lo_us=turn.lo_us,
            drops=named,
            before=before,
            first=goes_first,
        )
        self.defer(trigger=waiting, method_name="execute", kwargs={"planned": planned})

    def _follows_on(self, drops: range) -> bool:
        from spark_jobs.jobs.drops import follows_on

        settings = load_settings()
        return follows_on(settings, find_source(settings.sources, self.source), drops)

    def _tell_plan(self, lo: datetime, hi: datetime) -> None:
        if self.task_id == FIRST:
            for line in planned_files(self.source, lo, hi):
                self.log.info("%s", line)
        raise AirflowSkipException(f"dry run: nothing was done for {self.source} from {lo} to {hi}")


class MaintenanceOperator(BaseOperator):
    """Does every step of the maintenance of a source, or, of None, of the installation; ending the task ends its Spark
    work. Returns the steps. Fails once all are done if one did, and is retried only where the lake server was away.
    `only`: the one step of the source to do; None: all."""

    ui_color = "#dcfce7"

    def __init__(self, *, source: str | None, only: str | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.source = source
        self.only = only

    def execute(self, context: Any) -> list[dict[str, Any]]:
        """Called by Airflow in the task's own process."""
        from spark_jobs.server.airflow_database import clean
        from spark_jobs.upkeep.maintenance import as_text, maintain, step_failed

        session_name = f"maintain:{self.source}:{context['run_id']}"
        with log_failures(self.log), StepLines("maintain", partial(self.log.info, "%s")) as report_step:
            steps = maintain(load_settings(), self.source, session_name, clean, report_step, self.only)
        self.log.info("maintenance of %s\n%s", self.source or "the installation", as_text(steps))
        failed = [step for step in steps if step.failed]
        if failed:
            self.log.error("%s", step_failed(failed))
            raise AirflowFailException(str(step_failed(failed)))
        return [step.to_json() for step in steps]

    def on_kill(self) -> None:
        """As that of `StageOperator`."""
        raise KeyboardInterrupt(f"maintenance of {self.source or 'the installation'} was ended")


def _leases() -> Any:
    return load_settings().home / "leases"


def _preload_beside(stage: str) -> None:
    """Import Great Expectations, or dbt where marts follow, while Spark works on the stage: it takes seconds.

    The first stage does so by itself, once it has files to land.
    """
    from spark_jobs.gates import preload as preload_gates
    from spark_jobs.publish.marts import preload as preload_dbt

    threading.Thread(target=preload_dbt if stage == LAST else preload_gates, daemon=True).start()
