"""Publish: one commit makes everything that the run wrote visible, in all tables at once; then the marts follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.definitions.definition import histories
from spark_jobs.definitions.versions import version
from spark_jobs.errors import TidemarkError
from spark_jobs.gates import build_data_docs
from spark_jobs.jobs.audit_note import last_audit
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.gates import write_verdicts
from spark_jobs.jobs.mart_tests import keep_mart_tests
from spark_jobs.jobs.names import let_names_follow
from spark_jobs.model import STAGED
from spark_jobs.publish.changes import changes_since, rows_of_windows
from spark_jobs.publish.marts import MARTS, MartsFailed, MartTest, build_marts, models
from spark_jobs.session import session_kind
from spark_jobs.sources import Source
from spark_jobs.storage import publication
from spark_jobs.storage.fold import fold
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.settle import settled


class StageMissing(TidemarkError):
    """A stage that a publication needs has not run since the trace last moved. Facts: `source`, `missing`."""

    code = "stage_missing"


ROWS_INTERPRETED = 2_000_000
"""Up to so many rows of windows Spark interprets the marts' queries. To make and compile code for them took 42 % of the
samples of a day of flights' marts."""


def publish(stage: Stage) -> None:
    """Move `published` to the seal, with the tokens of this run's stages; nothing if that is what is shown already.

    Raises:
        StageMissing: `window` or `compact` has not run since the trace last moved.
    """
    due = not stage.scope.nothing_to_do()
    if due:
        _refuse_missing(stage)
    # first the verdicts: whatever is published has passed gates whose verdicts can be read
    write_verdicts(stage)
    shown = _publish(stage) if due else stage.publication
    stage.summary.update(published_us=shown.published_us, moved=due)
    stage.summary["audit"] = last_audit(stage.settings.home, stage.source.name)
    if shown.published_us > 0:
        healed = let_names_follow(stage.settings, stage.lake, stage.source)
        stage.summary.update({"healed": healed} if healed else {})
    build_data_docs(stage.settings)
    keep = partial(keep_mart_tests, stage)
    marts = marts_follow(stage.settings, stage.lake, stage.source, shown.published_us, keep)
    stage.summary.update({"marts": marts} if marts else {})


def _publish(stage: Stage) -> Publication:
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
    after = settled(stage.lake, stage.source, after)
    publication.commit(stage.lake, stage.source, stage.fence, after)
    if after.settled > before.settled or stage.scope.everything:
        _fold(stage, after)
    return after


def _fold(stage: Stage, published: Publication) -> None:
    """Fold what has been closed since the last time."""
    for history in histories(stage.source):
        rows = fold(stage.lake, history, published, stage.fence)
        if rows:
            stage.summary.setdefault("folded", {})[history.table.qualified] = rows


def marts_follow(
    settings: Settings,
    lake: Lake,
    source: Source,
    published_us: int,
    keep: Callable[[Sequence[MartTest]], None] | None = None,
) -> str | None:
    """Let the marts follow; what was done, None if they had. dbt speaks to the lake server: a classic session leaves
    them behind. `keep` is given what came of dbt's tests."""
    if published_us == 0:
        return None
    marker = settings.home / "dbt" / f"{source.name}.published"
    built = _noted(marker)
    standing = _standing_marts(lake)
    if built.get("published") == published_us and standing.issuperset(built["marts"]):
        return None
    if session_kind(settings) == "classic":
        return "left behind: they are built through the lake server"
    noted = {mart: note for mart in standing & models() if (note := lake.noted(MARTS, mart)) is not None}
    # of the source's own marts: each publication is a look at all of its histories
    notes = (noted[mart].note for mart in built.get("marts", ()) if mart in noted)
    reflected = {int(note["published"]) for note in notes if "published" in note}
    changes = changes_since(lake, source, reflected)
    compiled = rows_of_windows(lake, source) > ROWS_INTERPRETED
    try:
        result = build_marts(
            settings, source.name, published_us=published_us, standing=noted, changes=changes, compiled=compiled
        )
    except MartsFailed as failure:
        if keep is not None:
            keep(failure.tests)
        raise
    if keep is not None:
        keep(result.tests)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(json.dumps({"published": published_us, "marts": result.marts}))
    return f"{len(result.status)} models and tests in {result.seconds:.1f} s"


def marts_lacking(settings: Settings, lake: Lake, source: Source) -> list[str]:
    """The marts that were built when the source published last, and that the catalog does not have."""
    built = _noted(settings.home / "dbt" / f"{source.name}.published").get("marts", [])
    return sorted(f"{MARTS}.{mart}" for mart in {*built} - lake.names_if_present(MARTS))


def _noted(marker: Path) -> dict[str, Any]:
    """What the marts were built of last; nothing of a note that is gone, cut, or of an older version."""
    try:
        built = json.loads(marker.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return built if isinstance(built, dict) else {}


def _standing_marts(lake: Lake) -> set[str]:
    """The marts that the catalog has, once those that it alone has lost are given to it again."""
    present = lake.names_if_present(MARTS)
    return present | {mart for mart in models() - present if lake.take_up(MARTS, mart)}


def _refuse_missing(stage: Stage) -> None:
    missing = [name for name in STAGED if name not in stage.lease.staged]
    if missing:
        raise StageMissing(
            expected=f"window and compact to have run on what {stage.source.name} has sealed",
            found=f"no {' and no '.join(missing)} since the trace last moved",
            consequence="nothing was published",
            next_step="run the stages of this run from window on",
            source=stage.source.name,
            missing=missing,
        )
