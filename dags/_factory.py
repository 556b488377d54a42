"""From a source to its DAG: schedule, tasks, assets, documentation. Parsing imports neither pyspark nor the jobs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, BaseOperator, Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.timetables.interval import CronDataIntervalTimetable, DeltaDataIntervalTimetable

from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source, find_source
from spark_jobs.sources.quantities import DAY_US, HOUR_US, MINUTE_US, format_duration, instant_at

STAGES = ("land", "seal", "window", "compact", "publish")
"""Tasks of every DAG, in their order; each ends with its gate."""

RETRIED = frozenset({"server_unreachable", "source_busy", "lake_busy", "marts_failed"})
"""Refusals that may pass by themselves. All others, a failed gate first, are the same the next time: not retried."""


def source_dag(source: Source) -> DAG:
    """The DAG of one source: `land >> seal >> window >> compact >> publish` over each interval of its schedule."""
    with DAG(
        dag_id=source.name,
        description=source.description,
        doc_md=documentation(source),
        schedule=timetable(source),
        start_date=instant_at(source.start_us),
        catchup=False,
        max_active_runs=source.dag.max_active_runs,
        tags=["tidemark", *source.dag.tags],
        params=parameters(source),
        default_args={
            "owner": source.dag.owner,
            "retries": source.dag.retries,
            "retry_delay": timedelta(microseconds=source.dag.retry_delay_us),
        },
    ) as dag:
        previous = None
        for stage in STAGES:
            task = StageOperator(
                task_id=stage,
                source=source.name,
                start_us=source.start_us,
                every_us=source.every_us,
                # Airflow only backfills a DAG that has a schedule: a source run by hand has one that does nothing
                by_hand=source.dag.schedule == "manual",
                outlets=assets(source, stage),
            )
            if previous is not None:
                previous >> task
            previous = task
    return dag


def timetable(source: Source) -> CronDataIntervalTimetable | DeltaDataIntervalTimetable:
    """Data intervals that are the source's drops; a schedule that cron can't express counts from the start date."""
    every_us = source.every_us
    if every_us == DAY_US:
        return CronDataIntervalTimetable("@daily", timezone="UTC")
    if every_us % HOUR_US == 0 and DAY_US % every_us == 0:
        return CronDataIntervalTimetable(f"0 */{every_us // HOUR_US} * * *", timezone="UTC")
    if HOUR_US % every_us == 0:
        return CronDataIntervalTimetable(f"*/{every_us // MINUTE_US} * * * *", timezone="UTC")
    return DeltaDataIntervalTimetable(timedelta(microseconds=every_us))


def parameters(source: Source) -> dict[str, Param]:
    """What a person may set for a manual run."""
    format_ = "date" if source.every_us % DAY_US == 0 else "date-time"
    return {
        "from": Param(
            None, type=["null", "string"], format=format_, description="First drop; empty: the run's own interval."
        ),
        "to": Param(
            None, type=["null", "string"], format=format_, description="Last drop, included; empty: the first."
        ),
        "dry_run": Param(False, type="boolean", description="Say which files would be read, and change nothing."),
    }


def assets(source: Source, stage: str) -> list[Asset]:
    """What a stage writes, as `tidemark://<database>/<table or source>`."""
    written = {
        "land": [f"bronze/{source.name}"],
        "seal": [f"trace/{source.name}"],
        "window": [f"silver/{name}" for name in source.windows],
        "compact": [f"gold/{source.name}"] if source.state else [],
        "publish": [f"published/{source.name}"],
    }
    return [Asset(name=path, uri=f"tidemark://{path}") for path in written[stage]]


def documentation(source: Source) -> str:
    """The DAG's page in Airflow."""
    windows = [
        f"| `silver.{name}` | {each.kind} | {', '.join(each.key)} | {source.window_time(name)} | {each.late.policy} |"
        for name, each in source.windows.items()
    ]
    table = (
        ["", "| windows | kind | per | over | late rows |", "| --- | --- | --- | --- | --- |", *windows]
        if windows
        else []
    )
    state = f"State per `{source.entity}` in `gold.{source.name}`." if source.state else "No state."
    lines = [
        f"{source.description}",
        "",
        f"Reads `{source.landing.path}` ({source.landing.format}) below the landing directory: one drop every"
        f" {format_duration(source.every_us)} since {instant_at(source.start_us):%Y-%m-%d %H:%M} UTC. {state}",
        *table,
        "",
        "Every stage ends with its gate. **If a gate fails** the task fails without a retry, nothing is published, and"
        " the task's log and the Data Docs say what was found and who acts. **Any other failure**: clear the failed"
        " task; every stage can be repeated.",
        "",
        "**By hand**: trigger with `from` and `to` (both included), or `dry_run` to see what would be read. This DAG is"
        f" made from `dags/sources/{source.name}.yml`; change it there.",
    ]
    return "\n".join(lines)


class StageOperator(BaseOperator):
    """Runs one stage of a source for the run's drops; ending the task ends its Spark work.

    Returns the stage's summary. Refusals that would be the same the next time are not retried (see `RETRIED`).
    """

    ui_color = "#dbeafe"

    def __init__(self, *, source: str, start_us: int, every_us: int, by_hand: bool, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.source = source
        self.start_us = start_us
        self.every_us = every_us
        self.by_hand = by_hand

    def execute(self, context: Any) -> dict[str, Any]:
        """Called by Airflow in the task's own process: the only place that imports the jobs."""
        if self.by_hand and context["dag_run"].run_type == "scheduled":
            raise AirflowSkipException(f"{self.source} runs when people ask for it: trigger it, or backfill a range")
        lo, hi = run_interval(context, start_us=self.start_us, every_us=self.every_us)
        if context["params"].get("dry_run"):
            self._tell_plan(lo, hi)
        try:
            from spark_jobs.jobs.stage import run_stage
            from spark_jobs.jobs.summaries import summary_table

            _preload_beside(self.task_id)
            summary = run_stage(self.task_id, source=self.source, lo=lo, hi=hi, run_id=context["run_id"])
        except TidemarkError as error:
            self.log.error("%s", error)
            if error.code in RETRIED:
                raise
            raise AirflowFailException(str(error)) from error
        self.log.info("%s of %s from %s to %s\n%s", self.task_id, self.source, lo, hi, summary_table(summary))
        return summary

    def on_kill(self) -> None:
        """Airflow calls this in a signal handler: unwind `run_stage`, which interrupts its Spark session."""
        raise KeyboardInterrupt(f"{self.task_id} of {self.source} was ended")

    def _tell_plan(self, lo: datetime, hi: datetime) -> None:
        for line in planned_files(self.source, lo, hi):
            self.log.info("%s", line)
        raise AirflowSkipException(f"dry run: nothing was done for {self.source} from {lo} to {hi}")


def run_interval(context: Any, *, start_us: int, every_us: int) -> tuple[datetime, datetime]:
    """`[lo, hi)` of a run: the drops its parameters name, else those that end in its data interval, else the last drop
    that has ended.

    Airflow counts intervals of several days since 1970, drops count from the source's start.
    """
    every = timedelta(microseconds=every_us)
    first, last = (_instant(context["params"].get(name)) for name in ("from", "to"))
    if first is not None:
        return first, (last or first) + every
    run = context["dag_run"]

    def last_end(time: datetime) -> datetime:
        return start + (time - start) // every * every

    start = instant_at(start_us)
    if run.data_interval_start is not None and run.data_interval_end != run.data_interval_start:
        return last_end(run.data_interval_start), last_end(run.data_interval_end)
    return last_end(run.run_after) - every, last_end(run.run_after)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _instant(text: str | None) -> datetime | None:
    if not text:
        return None
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def planned_files(source: str, lo: datetime, hi: datetime) -> Iterator[str]:
    """One line per drop of `[lo, hi)`: its files and their sizes."""
    from spark_jobs.config import load_settings
    from spark_jobs.landing.files import list_drop_files

    settings = load_settings()
    checked = find_source(settings.sources, source)
    lo_us, hi_us = ((time - _EPOCH) // timedelta(microseconds=1) for time in (lo, hi))
    for seq_no in checked.drops.spanned(lo_us, hi_us):
        files = list_drop_files(settings.landing, checked, seq_no)
        size = sum(file.size for file in files)
        listed = ", ".join(file.path for file in files)
        yield f"drop {checked.drops.label(seq_no)}: {len(files)} files, {size} bytes: {listed}"


def _preload_beside(stage: str) -> None:
    """Import Great Expectations (and dbt, where marts follow) while Spark works on the stage: it takes seconds."""
    from spark_jobs.gates import preload as preload_gates
    from spark_jobs.publish.marts import preload as preload_dbt

    threading.Thread(target=preload_dbt if stage == "publish" else preload_gates, daemon=True).start()
