"""From a source to its DAG: schedule, tasks, assets, documentation. Parsing imports neither pyspark nor the jobs."""

from __future__ import annotations

from datetime import timedelta

from _tasks import ASSETS, DROPS_ASSET, StageOperator
from airflow.sdk import DAG, Asset, Param
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert

from spark_jobs.model import FIRST, STAGES
from spark_jobs.scheduling.alerts import FailureNotifier, tell_late
from spark_jobs.scheduling.deadline import DropEnd
from spark_jobs.scheduling.priority import DayFirst
from spark_jobs.scheduling.timetable import DropTimetable
from spark_jobs.sources import Source
from spark_jobs.sources.quantities import DAY_US, instant_at

MAX_RETRY_DELAY = timedelta(hours=1)


def source_dag(source: Source) -> DAG:
    """The DAG of one source: `land >> seal >> window >> compact >> publish` over each interval of its schedule."""
    by_itself = source.dag.schedule == "every"
    with DAG(
        dag_id=source.name,
        description=source.description,
        doc_md=documentation(source),
        schedule=DropTimetable(source.drops, by_itself=by_itself),
        start_date=instant_at(source.start_us),
        catchup=False,
        # a DAG that nothing starts by itself need not be paused: whoever starts a run means it
        is_paused_upon_creation=by_itself,
        max_active_runs=source.dag.max_active_runs,
        tags=["tidemark", *source.dag.tags],
        params=parameters(source),
        deadline=deadlines(source),
        on_failure_callback=[FailureNotifier(source.name, source.dag.notify)] if source.dag.notify else None,
        default_args={
            "owner": source.dag.owner,
            "retries": source.dag.retries,
            "retry_delay": timedelta(microseconds=source.dag.retry_delay_us),
            "retry_exponential_backoff": 2,
            "max_retry_delay": MAX_RETRY_DELAY,
        },
    ) as dag:
        previous = None
        for stage in STAGES:
            task = StageOperator(
                task_id=stage,
                source=source.name,
                drops=source.drops,
                notify=source.dag.notify,
                waits=source.wait_us is not None or bool(source.dag.after),
                inlets=[asset(f"published/{name}") for name in source.dag.after] if stage == FIRST else [],
                outlets=assets(source, stage),
                weight_rule=DayFirst(),
                # a drop without files shows its first stage as skipped, and is published like any other
                trigger_rule="none_failed" if previous is not None and previous.task_id == FIRST else "all_success",
            )
            if previous is not None:
                previous >> task
            previous = task
    return dag


def deadlines(source: Source) -> list[DeadlineAlert]:
    """When scheduled runs have to be done; none where the file does not say."""
    if source.dag.deadline_us is None:
        return []
    arguments = {"source": source.name, "recipients": list(source.dag.notify)}
    after = timedelta(microseconds=source.dag.deadline_us)
    return [DeadlineAlert(DropEnd(), after, AsyncCallback(tell_late, arguments), name="late")]


def parameters(source: Source) -> dict[str, Param]:
    """The parameters that a person may set for a manual run."""
    format_ = "date" if source.drops.every_us % DAY_US == 0 else "date-time"
    return {
        "from": Param(
            None, type=["null", "string"], format=format_, description="First drop; empty: the run's own interval."
        ),
        "to": Param(
            None, type=["null", "string"], format=format_, description="Last drop, included; empty: the first."
        ),
        "file": Param(
            None,
            type=["null", "string"],
            description="Only this file of the drops, relative to the landing directory.",
        ),
        "retract": Param(False, type="boolean", description="Take back the rows that the drops, or the file, landed."),
        "replay": Param(
            False,
            type="boolean",
            description="Read the files of the drops that have open records in quarantine again, and no others.",
        ),
        "rule": Param(
            None, type=["null", "string"], description="With replay: only files with records that this rule rejected."
        ),
        "accept_definition": Param(
            False,
            type="boolean",
            description="Accept the changed source file: recompute affected results, and publish them.",
        ),
        "pass_gap": Param(
            False,
            type="boolean",
            description="Move the seal past drops that were never run: reads as of their times lose them for good.",
        ),
        "override": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            description="Checks that may fail in this run, by name; say why below.",
        ),
        "because": Param(None, type=["null", "string"], description="Why they may; kept in quality.overrides."),
        "dry_run": Param(False, type="boolean", description="Say which files would be read, and change nothing."),
        "plan": Param(
            False,
            type="boolean",
            description="Show the run's changes, and wait for an approval; a rejected run changes nothing.",
        ),
    }


def assets(source: Source, stage: str) -> list[Asset]:
    """The assets that a stage writes, as `tidemark://<database>/<table or source>`."""
    written = {
        "land": [f"bronze/{source.name}"],
        "seal": [f"trace/{source.name}"],
        "window": [f"silver/{name}" for name in source.windows],
        "compact": [f"gold/{source.name}"] if source.state else [],
        "publish": [f"published/{source.name}", f"{DROPS_ASSET}{source.name}"],
    }
    return [asset(path) for path in written[stage]]


def asset(path: str) -> Asset:
    """The asset `tidemark://<path>`. Its name is its URI, as where a team writes `Asset("tidemark://…")`: of two assets
    with one URI and two names Airflow uses one alone, and fails the tasks of the other."""
    return Asset(f"{ASSETS}{path}")


def _origin(source: Source) -> str:
    """The place that a drop is read from, in words for people."""
    landing = source.landing
    if landing.kind == "files":
        return f"`{landing.path}` ({landing.format}) below the landing directory"
    read = f"the topic `{landing.topic}`" if landing.kind == "topic" else f"`{landing.table or landing.query}`"
    return f"{read} of the connection `{landing.connection}`"


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
        f"Reads {_origin(source)}: one drop every {source.drops.every} since"
        f" {instant_at(source.start_us):%Y-%m-%d %H:%M} UTC. {state}",
        *table,
        "",
        "Every stage ends with its gate. **If a gate fails** the task fails without a retry, nothing is published, and"
        " the task's log and the Data Docs say what was found and who acts. **Any other failure**: clear the failed"
        " task; every stage can be repeated.",
        "",
        "**By hand**: trigger with `from` and `to` (both included), or `dry_run` to see the files that would be read."
        f" This DAG is made from `dags/sources/{source.name}.yml`; change it there.",
    ]
    return "\n".join(lines)
