"""The DAG that keeps the installation small and known to be whole: a task for each source, then one for the rest."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from _tasks import MaintenanceOperator
from airflow.sdk import DAG, CronTriggerTimetable

from spark_jobs.config import load_settings
from spark_jobs.scheduling.alerts import MAINTENANCE, MaintenanceNotifier
from spark_jobs.server.airflow_parts import set_up_at
from spark_jobs.sources import read_sources

DOCUMENTATION = """\
What `tidemark maintain` does: chunks and trace merge, history folds, small files are joined, old results and what
nothing reads any more leave, the audit proves the source; then a backup, where `TIDEMARK_BACKUP` says where to, and old
logs, reports, plans and Airflow's records of old runs leave. No answer changes, and runs go on meanwhile.

Each task's log ends with a table of its steps: files and bytes before and after. **If a step fails**, the others are
done all the same; the task fails, says which and what to do, and whom the source files name in `notify` is told. When
it runs: `TIDEMARK_MAINTENANCE_SCHEDULE`.
"""


def _notifiers(source: str | None, recipients: Sequence[str]) -> list[MaintenanceNotifier]:
    """The function that notifies people of a failed task; None if no source file names anybody."""
    return [MaintenanceNotifier(source, recipients)] if recipients else []


_settings = load_settings()
_sources = read_sources(_settings.sources).sources
_schedule = _settings.maintenance_schedule
with DAG(
    dag_id=MAINTENANCE,
    description="Merge, fold, compact, vacuum, audit, back up; remove old logs and reports.",
    doc_md=DOCUMENTATION,
    schedule=None if _schedule == "manual" else CronTriggerTimetable(_schedule, timezone="UTC"),
    # a new installation has nothing to maintain: Airflow would run what was due before it
    start_date=set_up_at(_settings) or datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    # nobody should have to think of it
    is_paused_upon_creation=False,
    max_active_runs=1,
    # runs of sources need the other slots, and go first
    max_active_tasks=1,
    tags=["tidemark", "maintenance"],
    default_args={"owner": "tidemark", "retries": 2, "retry_delay": timedelta(minutes=10), "weight_rule": "absolute"},
) as dag:
    _of_sources = [
        MaintenanceOperator(
            task_id=f"maintain_{_name}", source=_name, on_failure_callback=_notifiers(_name, _source.dag.notify)
        )
        for _name, _source in sorted(_sources.items())
    ]
    _everybody = dict.fromkeys(_each for _, _source in sorted(_sources.items()) for _each in _source.dag.notify)
    # the DAG's own callback would not do: a run succeeds with this task, whatever came of those before it
    _installation = MaintenanceOperator(
        task_id="installation",
        source=None,
        trigger_rule="all_done",
        on_failure_callback=_notifiers(None, list(_everybody)),
    )
    _of_sources >> _installation
