"""What a task does: its drops, its turn on the source, its stage. Only a task's own process imports the jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from _failures import failures_told
from _plans import APPROVE, REJECTED, answerer, ask, rejection
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from structlog.contextvars import bind_contextvars

from spark_jobs.config import load_settings
from spark_jobs.errors import TidemarkError
from spark_jobs.model import FIRST, LAST, is_backfill
from spark_jobs.sources import find_source
from spark_jobs.sources.drops import Schedule
from spark_jobs.sources.quantities import instant_at
from spark_jobs.storage.turns import Line, Turn, end_turn

if TYPE_CHECKING:
    from spark_jobs.scheduling.alerts import Event

DROPS_ASSET = "drops/"
"""What the name of an asset begins with that has a partition for each drop."""


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
        begun, params = time.monotonic(), context["params"]
        with failures_told(self.log):
            lo, hi = run_interval(context["dag_run"], params, self.drops)
            self._bind_log(context, lo, hi)
            if params.get("dry_run"):
                self._tell_plan(lo, hi)
            if params.get("plan"):
                self._follow_plan(context, lo, hi, planned)
            if self.task_id == FIRST:
                if self.waits:
                    self._wait_for_inputs(context, lo, hi, planned)
                self._wait_for_turn(context, lo, hi, planned)
            from spark_jobs.jobs.stage import run_stage
            from spark_jobs.jobs.summaries import summary_table

            _preload_beside(self.task_id)
            imported = time.monotonic()
            request = stage_request(params, planned)
            summary = run_stage(
                self.task_id, source=self.source, lo=lo, hi=hi, run_id=context["run_id"], request=request
            )
        self._summary = summary
        self.log.info("%s of %s from %s to %s\n%s", self.task_id, self.source, lo, hi, summary_table(summary))
        self.log.info("%s", self._spent(context, begun, imported, summary))
        if self.task_id == LAST:
            end_turn(_leases(), self.source, context["run_id"])
            self._tell_assets(context, lo, hi, summary)
            self._tell_warnings(context["run_id"])
        if summary.get("empty_drops"):
            message = f"no file for {', '.join(summary['empty_drops'])}: taken as empty"
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
        return self._run(context, planned)

    def _spent(self, context: Any, begun: float, imported: float, summary: Mapping[str, Any]) -> str:
        """One line: what the task's time went into, and which of it most."""
        now, work = time.monotonic(), float(summary.get("seconds", 0.0))
        since_start = (datetime.now(UTC) - context["ti"].start_date).total_seconds()
        spent = {
            "start and turn" if self.task_id == FIRST else "start": since_start - (now - begun),
            "imports": imported - begun,
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
        """Let each line of the log, also of what the stage calls, say of which run, source, stage and drops it is."""
        bind_contextvars(
            run=context["run_id"], source=self.source, stage=self.task_id, drops=named_drops(self.drops, lo, hi)
        )

    def _tell_assets(self, context: Any, lo: datetime, hi: datetime, summary: Mapping[str, Any]) -> None:
        """Say in the events of this run's assets what was published, and of which drops."""
        landed = context["ti"].xcom_pull(task_ids=FIRST) or {}
        labels = [self.drops.label(n) for n in self.drops.spanned(_micros(lo), _micros(hi))]
        extra = {
            "run_id": context["run_id"],
            "from": labels[0],
            "to": labels[-1],
            "lo": lo.isoformat(),
            "hi": hi.isoformat(),
            "rows": landed.get("rows", 0),
            "published": instant_at(summary["published_us"]).isoformat() if summary.get("published_us") else None,
            "changed": bool(summary.get("moved")),
            "page": load_settings().page_url("runs", self.source, context["run_id"]),
        }
        for asset in self.outlets:
            context["outlet_events"][asset].extra.update(extra)
            if asset.name.startswith(DROPS_ASSET):
                context["outlet_events"][asset].add_partitions(labels)

    def _tell_warnings(self, run_id: str) -> None:
        """Tell of the run's checks that warn, as the table of results has them."""
        if not self.notify:
            return
        from spark_jobs.storage.results import warned_checks

        warned = warned_checks(load_settings().lake, self.source, run_id)
        if warned:
            self._tell("warned", run_id, f"checks of run {run_id} warn: {'; '.join(warned)}")

    def _tell(self, event: Event, run_id: str, message: str) -> None:
        if self.notify:
            from spark_jobs.scheduling.alerts import alert, send

            settings = load_settings()
            send(settings, alert(settings, event, self.source, run_id, message), self.notify)

    def _follow_plan(self, context: Any, lo: datetime, hi: datetime, planned: str | None) -> None:
        """Ask for the plan's approval in the first stage; end the others where it was rejected."""
        if self.task_id != FIRST:
            if context["ti"].xcom_pull(task_ids=FIRST, key=REJECTED):
                raise AirflowSkipException("the plan was rejected: nothing was done")
        elif planned is None:
            ask(self.source, (_micros(lo), _micros(hi)), context)

    def _wait_for_inputs(self, context: Any, lo: datetime, hi: datetime, planned: str | None) -> None:
        from spark_jobs.scheduling.inputs import Inputs, InputsTrigger

        arguments = {
            "source": self.source,
            "lo_us": _micros(lo),
            "hi_us": _micros(hi),
            "scheduled": context["dag_run"].run_type == "scheduled",
        }
        missing = Inputs(**arguments).missing(datetime.now(UTC))
        if missing is not None:
            self.log.info("waits for %s", missing)
            self.defer(trigger=InputsTrigger(**arguments), method_name="execute", kwargs={"planned": planned})

    def _wait_for_turn(self, context: Any, lo: datetime, hi: datetime, planned: str | None) -> None:
        # not when DAGs are parsed: triggers bring what runs tasks along
        from spark_jobs.scheduling.trigger import AirflowRuns, TurnTrigger

        drops = self.drops
        first, last = (drops.seq_no_at(_micros(time)) for time in (lo, hi - timedelta(microseconds=1)))
        named = named_drops(drops, lo, hi)
        run_id, leases = context["run_id"], _leases()
        goes_first = not is_backfill(run_id) and self._follows_on(range(first, last + 1))
        turn = Turn(run_id, _micros(lo), named, staged=True, first=goes_first)
        before = earlier_run(context, lo, drops)
        whom = Line(leases, self.source, turn, AirflowRuns(self.source, before)).step()
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
    work. Returns the steps. Fails once all are done if one did, and is retried only where the lake server was away."""

    ui_color = "#dcfce7"

    def __init__(self, *, source: str | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.source = source

    def execute(self, context: Any) -> list[dict[str, Any]]:
        """Called by Airflow in the task's own process."""
        from spark_jobs.jobs.maintenance import as_text, maintain, step_failed

        with failures_told(self.log):
            steps = maintain(load_settings(), self.source, f"maintain:{self.source}:{context['run_id']}")
        self.log.info("maintenance of %s\n%s", self.source or "the installation", as_text(steps))
        failed = [step for step in steps if step.failed]
        if failed:
            self.log.error("%s", step_failed(failed))
            raise AirflowFailException(str(step_failed(failed)))
        return [step.to_json() for step in steps]

    def on_kill(self) -> None:
        """As that of `StageOperator`."""
        raise KeyboardInterrupt(f"maintenance of {self.source or 'the installation'} was ended")


def overrides(params: Mapping[str, Any]) -> dict[str, str]:
    """The checks that the trigger form lets fail, each with the reason."""
    return dict.fromkeys(params.get("override") or [], str(params.get("because") or ""))


def stage_request(params: Mapping[str, Any], planned: str | None) -> Any:
    """What the run's parameters ask of a stage; of the first, that what the approved plan was made on still stands."""
    from spark_jobs.jobs.base import Base
    from spark_jobs.jobs.request import Request

    pass_gap, overridden = bool(params.get("pass_gap")), overrides(params)
    if planned is not None:
        return Request.of_plan(Base.from_json(planned, "the approved plan"), pass_gap=pass_gap, overrides=overridden)
    # who approves a plan approves the definition that it was made on
    return Request(accept_definition=bool(params.get("plan")), pass_gap=pass_gap, overrides=overridden)


def run_interval(run: Any, params: Mapping[str, Any], drops: Schedule) -> tuple[datetime, datetime]:
    """`[lo, hi)` of a DAG run: the drops that its parameters name, else its data interval, else the last drop that had
    ended; of a run that somebody started for a logical date, the drop of that date.

    Raises:
        ParameterError: a parameter names no drop.
    """
    first, last = (params.get(name) for name in ("from", "to"))
    if first:
        return _instants(drops, drops.seq_nos(drops.time_named(first), drops.time_named(last or first)))
    ended = _drop(drops, run.run_after, -1)
    lo, hi = run.data_interval_start, run.data_interval_end
    if lo is None or lo == hi:
        return ended
    # `airflow dags trigger --logical-date` gives the interval of now, whatever the date
    date = run.logical_date
    if run.run_type == "manual" and (lo, hi) == ended and date is not None and not lo <= date < hi:
        return min(_drop(drops, date), ended)
    return lo, hi


def earlier_run(context: Any, lo: datetime, drops: Schedule) -> str | None:
    """The run next before this one, by logical date, that is on its way too, if its drops are earlier."""
    run = context["ti"].get_previous_dagrun(state="running")
    if run is None:
        return None
    try:
        begins = run_interval(run, run.conf or {}, drops)[0]
    except (TidemarkError, ValueError, OverflowError):
        return None  # it names no drop, and is refused
    return str(run.run_id) if begins < lo else None


def named_drops(drops: Schedule, lo: datetime, hi: datetime) -> str:
    """What people call the drops of a run."""
    first, last = (drops.label(drops.number_at(_micros(t))) for t in (lo, hi - timedelta(microseconds=1)))
    return first if first == last else f"{first} to {last}"


def _drop(drops: Schedule, time: datetime, further: int = 0) -> tuple[datetime, datetime]:
    """The drop that holds `time`, or one so many further."""
    number = drops.number_at(_micros(time)) + further
    return _instants(drops, range(number, number + 1))


def _instants(drops: Schedule, numbers: range) -> tuple[datetime, datetime]:
    return instant_at(drops.start(numbers.start)), instant_at(drops.start(numbers.stop))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _leases() -> Any:
    return load_settings().home / "leases"


def planned_files(source: str, lo: datetime, hi: datetime) -> Iterator[str]:
    """One line per drop of `[lo, hi)`: its files and their sizes."""
    from spark_jobs.landing.files import list_drop_files

    settings = load_settings()
    checked = find_source(settings.sources, source)
    if checked.extract is not None:
        yield f"drops that were not read yet are read by the run, through the connection {checked.extract.connection}"
    for seq_no in checked.drops.spanned(_micros(lo), _micros(hi)):
        files = list_drop_files(settings.landing, checked, seq_no)
        size = sum(file.size for file in files)
        listed = ", ".join(file.path for file in files)
        yield f"drop {checked.drops.label(seq_no)}: {len(files)} files, {size} bytes: {listed}"


def _preload_beside(stage: str) -> None:
    """Import Great Expectations (and dbt, where marts follow) while Spark works on the stage: it takes seconds."""
    from spark_jobs.gates import preload as preload_gates
    from spark_jobs.publish.marts import preload as preload_dbt

    threading.Thread(target=preload_dbt if stage == LAST else preload_gates, daemon=True).start()
