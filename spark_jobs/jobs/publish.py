"""The stage `publish`: one commit makes all rows of the run visible, in all tables at once; then the marts follow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from spark_jobs.definitions.definition import histories
from spark_jobs.definitions.versions import version
from spark_jobs.errors import TidemarkError
from spark_jobs.gates import build_data_docs
from spark_jobs.jobs.context import RunStage
from spark_jobs.jobs.in_force import take_fingerprints
from spark_jobs.jobs.marts import marts_follow
from spark_jobs.jobs.names import let_names_follow
from spark_jobs.judging.gate import write_verdicts
from spark_jobs.judging.mart_tests import keep_mart_tests
from spark_jobs.model import STAGED
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.audit_notes import last_audit
from spark_jobs.storage.coordination.fold import fold
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.coordination.settle import settle
from spark_jobs.storage.lakes.spark_lake import SparkLake


class StageMissing(TidemarkError):
    """A stage that a publication needs has not run since the trace last moved. Facts: `source`, `missing`."""

    code = "stage_missing"


def publish(stage: RunStage) -> None:
    """Publish up to the seal, with the tokens of this run's stages, unless nothing would change; then build the marts.

    Raises:
        StageMissing: `window` or `compact` has not run since the trace last moved.
    """
    due = not stage.scope.nothing_to_do()
    if due:
        _refuse_missing(stage)
    stage.report_step("verdicts and rows")
    # the verdicts go first, so that for all published rows the verdicts of their gates can be read
    write_verdicts(stage.judged)
    current_publication = _publish(stage) if due else stage.publication
    stage.summary.update(
        published_us=current_publication.published_us, moved=due, published_by=current_publication.run_id
    )
    stage.summary["audit"] = last_audit(stage.settings.home, stage.source.name)
    if current_publication.published_us > 0:
        stage.report_step("names in SQL")
        healed = let_names_follow(stage.settings, stage.lake, stage.source)
        stage.summary.update({"healed": healed} if healed else {})
    # a lake without Spark is for trying: nobody looks at its Data Docs, and marts are SQL
    if isinstance(stage.lake, SparkLake):
        stage.report_step("Data Docs")
        build_data_docs(stage.settings)
        stage.report_step("marts")
        keep = partial(keep_mart_tests, stage.judged)
        marts = marts_follow(stage.settings, stage.lake, stage.source, current_publication.published_us, keep)
        stage.summary.update({"marts": marts} if marts else {})


def _publish(stage: RunStage) -> Publication:
    before = stage.publication
    after = replace(
        before,
        published_us=stage.frontiers.seal_us,
        reached_us=stage.frontiers.reached_us,
        complete_us=stage.frontiers.complete_us(stage.source),
        tokens=tuple(sorted({*before.tokens, *stage.lease.staged.values()})),
        definition=version(stage.source),
        run_id=stage.run_id,
    )
    after = settle(stage.lake, stage.source, after)
    after = replace(after, tables=take_fingerprints(stage.lake, stage.source, before.tables))
    publication.commit(stage.lake, stage.source, stage.fence, after)
    # a lake without Spark is never read for so long that folding pays
    if isinstance(stage.lake, SparkLake) and (after.settled > before.settled or stage.scope.everything):
        _fold(stage, stage.lake, after)
    return after


def _fold(stage: RunStage, lake: SparkLake, published: Publication) -> None:
    """Fold the rows of the histories that were closed since they were last folded."""
    for history in histories(stage.source):
        rows = fold(lake, history, published, stage.fence)
        if rows:
            stage.summary.setdefault("folded", {})[history.table.qualified] = rows


def _refuse_missing(stage: RunStage) -> None:
    missing = [name for name in STAGED if name not in stage.lease.staged]
    if missing:
        raise StageMissing(
            expected=f"window and compact to have run on all sealed updates of {stage.source.name}",
            found=f"no {' and no '.join(missing)} since the trace last moved",
            consequence="nothing was published",
            next_step="run the stages of this run from window on",
            source=stage.source.name,
            missing=missing,
        )
