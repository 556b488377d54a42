"""One stage of a run: the only entry for Airflow's tasks, `tidemark run` and spark-submit.

`spark-submit spark_jobs/jobs/stage.py STAGE SOURCE --from D --to D --run-id ID` runs a stage in a JVM of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from spark_jobs.config import Settings, load_settings
from spark_jobs.definitions.definition import definitions
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.gates import GateFailed
from spark_jobs.jobs.context import RunStage
from spark_jobs.jobs.estimate import KEPT_RUNS
from spark_jobs.jobs.manifest import record_failure, record_publication
from spark_jobs.jobs.request import ALL, Request
from spark_jobs.jobs.stages import BODIES
from spark_jobs.jobs.summaries import summary_table
from spark_jobs.jobs.tokens import follow_lake
from spark_jobs.judging.gate import write_verdicts
from spark_jobs.model import FIRST, LAST, STAGED, STAGES, Report, ReportStep, report_nothing
from spark_jobs.session import open_session, work_on
from spark_jobs.sources import Source, find_source
from spark_jobs.storage.coordination import leases
from spark_jobs.storage.descriptions.times import instant, micros
from spark_jobs.storage.lakes.lake import RunLake
from spark_jobs.storage.lakes.spark_lake import SparkLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_stage(
    name: str,
    *,
    source: str,
    lo: datetime,
    hi: datetime,
    run_id: str,
    settings: Settings | None = None,
    spark: SparkSession | None = None,
    request: Request = ALL,
    report_step: ReportStep = report_nothing,
) -> dict[str, Any]:
    """Run the stage `name` of `source` for the interval `[lo, hi)`; returns its summary (plain JSON values).

    `report_step` is called with the longer steps within the stage. Opens a session of its own unless one is given, and
    always ends its Spark work: on any error or signal the session's jobs are interrupted, so that they do not run
    beside a retry.

    Raises:
        TidemarkError: the stage was refused, superseded, its gate failed, or the lake server was lost.
    """
    settings = settings or load_settings()
    if name not in STAGES:
        raise ParameterError(
            expected=f"one of {', '.join(STAGES)}", found=repr(name), next_step="name a stage of the pipeline"
        )
    checked = find_source(settings.sources, source)
    checked.drops.drops_spanned(micros(lo), micros(hi))  # refused before a session is opened
    session = spark or open_session(settings, f"{source}:{name}:{run_id}")
    try:
        with work_on(session, settings):
            session.conf.set("spark.sql.adaptive.enabled", str(settings.adaptive).lower())
            return attempt(
                name,
                checked,
                settings,
                SparkLake(session),
                lo_us=micros(lo),
                hi_us=micros(hi),
                run_id=run_id,
                request=request,
                report_step=report_step,
            )
    finally:
        if spark is None:
            session.stop()


def attempt(
    name: str,
    source: Source,
    settings: Settings,
    lake: RunLake,
    *,
    lo_us: int,
    hi_us: int,
    run_id: str,
    request: Request = ALL,
    report_step: ReportStep = report_nothing,
) -> dict[str, Any]:
    """Run the stage on this lake; as `run_stage`, with the interval in microseconds."""
    start_s, commits = time.monotonic(), lake.commits
    folder, summary = settings.home / "leases", Report()
    with leases.take(
        folder, source=source.name, run_id=run_id, starts_run=name == FIRST, wait_s=leases.WAIT_S
    ) as lease:
        raised = follow_lake(lake, source, lease)
        stage = RunStage(name, settings, source, lo_us, hi_us, run_id, lake, lease, request, report_step=report_step)
        if name not in STAGED and name != LAST:
            lease.staged.clear()
        if raised:
            summary["lease"] = f"lost or older than the lake: counts on from token {lease.fence.token}"
        try:
            summary |= BODIES[name](stage)
        except Exception as error:
            if isinstance(error, GateFailed):
                write_verdicts(lake, stage.judged, stage.frontiers.seal_us)
            # a manifest that can't be written must not hide the error of the stage
            with suppress(Exception):
                record_failure(lake, stage.judged, lease.stages, stage.publication, name, error)
            raise
        if name in STAGED:
            lease.record(name)
        seconds = round(time.monotonic() - start_s, 3)
        _note_spent(lease, name, seconds, summary)
        _note_report(lease, name, seconds, lake.commits, summary)
        if name == LAST:
            published_us, moved = summary["published_us"], summary["moved"]
            outputs = record_publication(lake, stage.judged, lease.stages, stage.publication, published_us, moved=moved)
            summary |= {"restated": _restated_windows(source, outputs)}
        lease.save()
    return {
        "stage": name,
        "source": source.name,
        "run_id": run_id,
        "token": stage.fence.token,
        **summary,
        "commits": lake.commits - commits,
        "seconds": seconds,
    }


def _restated_windows(source: Source, outputs: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The number of published windows that a run changed or removed, by table; tables without any are left out."""
    counts = {
        f"silver.{definition.name}": outputs.get(definition.table().qualified, {}).get("restated", 0)
        for definition in definitions(source)
    }
    return {table: count for table, count in counts.items() if count}


def _note_report(lease: leases.Lease, name: str, seconds: float, commits: int, summary: Report) -> None:
    """Keep the stage's report for the run's manifest, in place of the report of an earlier attempt."""
    began = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    summary = json.loads(json.dumps(summary, default=str))
    report = {"stage": name, "began": began, "seconds": seconds, "commits": commits, **summary}
    lease.stages = [*(other for other in lease.stages if other["stage"] != name), report]


def _note_spent(lease: leases.Lease, name: str, seconds: float, summary: Report) -> None:
    """Keep the seconds of the stage; after the last stage of a whole run, keep its rows and seconds for estimates."""
    if name == FIRST:
        lease.spent = {"rows": summary["rows"] + summary["rows_back"]}
    lease.spent[name] = seconds
    if name == LAST and all(stage in lease.spent for stage in STAGES):
        whole = (int(lease.spent["rows"]), round(sum(lease.spent[stage] for stage in STAGES), 3))
        lease.past = [*lease.past, whole][-KEPT_RUNS:]


def main(arguments: list[str] | None = None) -> int:
    """The command line of one stage; prints its summary as JSON, and as a table on standard error."""
    parser = argparse.ArgumentParser(prog="stage", description="Run one stage of a source for a range of drops.")
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("source")
    parser.add_argument("--from", dest="first", required=True, help="start of the first drop")
    parser.add_argument("--to", dest="last", required=True, help="start of the last drop")
    parser.add_argument("--run-id", required=True)
    parser.add_argument(
        "--accept-definition", action="store_true", help="recompute results that a changed source file affects"
    )
    parser.add_argument("--pass-gap", action="store_true", help="move the seal past drops that were never run")
    options = parser.parse_args(arguments)
    settings = load_settings()
    try:
        schedule = find_source(settings.sources, options.source).drops
        drops = schedule.seq_nos(schedule.time_named(options.first), schedule.time_named(options.last))
        lo, hi = instant(schedule.start(drops.start)), instant(schedule.start(drops.stop))
        summary = run_stage(
            options.stage,
            source=options.source,
            lo=lo,
            hi=hi,
            run_id=options.run_id,
            settings=settings,
            request=Request(accept_definition=options.accept_definition, pass_gap=options.pass_gap),
        )
    except TidemarkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(f"{options.stage} of {options.source}\n{summary_table(summary)}\n")
    sys.stdout.write(json.dumps(summary) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
