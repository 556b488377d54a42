"""The DAG of the actions beside runs: close records in quarantine, audit a source now, pin its tables."""

from datetime import UTC, datetime

from _actions import ACTIONS_BY_NAME, ActionOperator
from airflow.sdk import DAG, Param

from spark_jobs.model import ACTIONS

DOCUMENTATION = """\
Runs of this DAG are started by the portal's pages: `dismiss` closes open records in quarantine, `audit` proves that
stored rows are those of the files, `pin` copies published tables. They change no published row. The portal lets those
start them who may start runs of the source's own DAG. **Who may start runs of this DAG may do so for all sources.**

A run keeps who started it, and why (its note). If it fails, its task's log says what was found and what to do.
"""
_TEXT = ["null", "string"]

with DAG(
    dag_id=ACTIONS,
    description="Close records in quarantine, audit a source, pin its tables.",
    doc_md=DOCUMENTATION,
    schedule=None,
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    # nothing starts it by itself
    is_paused_upon_creation=False,
    tags=["tidemark", "actions"],
    params={
        "action": Param("audit", type="string", enum=sorted(ACTIONS_BY_NAME), description="What to do."),
        "source": Param("", type="string", description="The source."),
        "from": Param(None, type=_TEXT, description="dismiss, audit: the first drop; empty: all drops."),
        "to": Param(None, type=_TEXT, description="dismiss: the last drop, included; empty: the first alone."),
        "file": Param(None, type=_TEXT, description="dismiss: records of this file alone."),
        "rule": Param(None, type=_TEXT, description="dismiss: records that this rule rejected."),
        "name": Param(None, type=_TEXT, description="pin: its name; the copies are pins.<name>__<table>."),
        "at": Param(None, type=_TEXT, description="pin: as known at this visible time; empty: at the newest."),
        "because": Param(None, type=_TEXT, description="Why; kept with what is done."),
    },
    default_args={"owner": "tidemark", "retries": 0},
) as dag:
    ActionOperator(task_id="act")
