"""The stage `publish`: one commit makes all rows of the run visible, in all tables at once; then the marts follow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
from spark_jobs.model import STAGED, Report
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.audit_notes import last_audit
from spark_jobs.storage.coordination.fold import fold
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.coordination.settle import settle
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.lakes.lake import RunLake
from spark_jobs.storage.lakes.spark_lake import SparkLake


class StageMissing(TidemarkError):
    """A stage that a publication needs has not run since the trace last moved. Facts: `source`, `missing`."""

    code = "stage_missing"


def publish(stage: RunStage) -> Report:
    """Publish up to the seal, with the tokens of this run's stages, unless nothing would change; then build the marts.

    Raises:
        StageMissing: `window` or `compact` has not run since the trace last moved.
    """
    lake, source, before = stage.lake, stage.source, stage.publication
    due = not stage.scope.nothing_to_do()
    if due:
        _refuse_missing(source, stage.lease.staged)
    stage.report_step("verdicts and rows")
    # the verdicts go first, so that for all published rows the verdicts of their gates can be read
    write_verdicts(lake, stage.judged, stage.frontiers.seal_us)
    published = _publish(lake, stage.scope, stage.fence, stage.run_id, stage.lease.staged.values()) if due else before
    report: Report = {}
    # a lake without Spark is never read for so long that folding pays
    if isinstance(lake, SparkLake) and (published.settled > before.settled or stage.scope.everything):
        folded = _fold(lake, source, stage.fence, published)
        report = {"folded": folded} if folded else {}
    report |= {"published_us": published.published_us, "moved": due, "published_by": published.run_id}
    report["audit"] = last_audit(stage.settings.home, source.name)
    if published.published_us > 0:
        stage.report_step("names in SQL")
        healed = let_names_follow(stage.settings, lake, source)
        report |= {"healed": healed} if healed else {}
    # a lake without Spark is for trying: nobody looks at its Data Docs, and marts are SQL
    if isinstance(lake, SparkLake):
        stage.report_step("Data Docs")
        build_data_docs(stage.settings)
        stage.report_step("marts")
        keep = partial(keep_mart_tests, stage.judged, lake, stage.frontiers.seal_us)
        marts = marts_follow(stage.settings, lake, source, published.published_us, keep)
        report |= {"marts": marts} if marts else {}
    return report


def _publish(lake: RunLake, scope: Scope, fence: Fence, run_id: str, staged: Iterable[int]) -> Publication:
    """Publish the rows of the tokens `staged`, up to the seal; returns the publication."""
    source, frontiers, before = scope.source, scope.frontiers, scope.publication
    after = replace(
        before,
        published_us=frontiers.seal_us,
        reached_us=frontiers.reached_us,
        complete_us=frontiers.complete_us(source),
        tokens=tuple(sorted({*before.tokens, *staged})),
        definition=version(source),
        run_id=run_id,
    )
    after = settle(lake, source, after)
    after = replace(after, tables=take_fingerprints(lake, source, before.tables))
    publication.commit(lake, source, fence, after)
    return after


def _fold(lake: SparkLake, source: Source, fence: Fence, published: Publication) -> dict[str, int]:
    """Fold the rows of the histories that were closed since they were last folded; returns their numbers by table."""
    folded = {each.table.qualified: fold(lake, each, published, fence) for each in histories(source)}
    return {table: rows for table, rows in folded.items() if rows}


def _refuse_missing(source: Source, staged: Collection[str]) -> None:
    """Refuse to publish if a stage whose rows would become visible is not among those that are `staged`."""
    missing = [name for name in STAGED if name not in staged]
    if missing:
        raise StageMissing(
            expected=f"window and compact to have run on all sealed updates of {source.name}",
            found=f"no {' and no '.join(missing)} since the trace last moved",
            consequence="nothing was published",
            next_step="run the stages of this run from window on",
            source=source.name,
            missing=missing,
        )
