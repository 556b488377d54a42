"""A DAG for each source whose chains are compacted in the background, every `background_interval`."""

from datetime import UTC, datetime, timedelta

from _tasks import MaintenanceOperator
from airflow.sdk import DAG, DeltaTriggerTimetable

from spark_jobs.config import load_settings
from spark_jobs.scheduling.alerts import MaintenanceNotifier
from spark_jobs.server.airflow_parts import set_up_at
from spark_jobs.sources import Source, read_sources

DOCUMENTATION = """\
Compacts the chains of the source that are due, without a run, as the step `chains` of `tidemark maintain` does. No
answer changes, and runs go on meanwhile. The source file's `compaction` says how often, and which chains are due; with
`background: true`, runs leave to this DAG what need not be compacted at once.
"""


def chains_dag(source: Source, interval: timedelta) -> DAG:
    """The DAG that compacts the chains of the source every `interval`."""
    dag_id = f"{source.name}-chains"  # no source's name has a hyphen
    with DAG(
        dag_id=dag_id,
        description=f"Compact the chains of {source.name}.",
        doc_md=DOCUMENTATION,
        schedule=DeltaTriggerTimetable(interval),
        start_date=set_up_at(load_settings()) or datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        # nobody should have to think of it
        is_paused_upon_creation=False,
        max_active_runs=1,
        tags=["tidemark", "maintenance"],
        default_args={"owner": "tidemark", "retries": 2, "retry_delay": timedelta(minutes=10)},
    ) as dag:
        recipients = source.dag.notify
        MaintenanceOperator(
            task_id="compact_chains",
            source=source.name,
            only="chains",
            on_failure_callback=[MaintenanceNotifier(source.name, recipients, dag_id)] if recipients else [],
        )
    return dag


for _name, _source in sorted(read_sources(load_settings().sources).sources.items()):
    _rules = _source.compaction
    if _rules is not None and _rules.background_interval_us is not None:
        globals()[f"{_name}_chains"] = chains_dag(_source, timedelta(microseconds=_rules.background_interval_us))
