"""Publish: one commit makes everything that the run wrote visible, in all tables at once."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.jobs.context import Stage
from spark_jobs.storage import publication


def publish(stage: Stage) -> None:
    """Move `published` to the seal, with the tokens of this run's stages; nothing if that is what is shown already."""
    before = stage.publication
    stage.summary.update(published_us=before.published_us, moved=False)
    if stage.scope.nothing_to_do():
        return
    tokens = tuple(sorted({*before.tokens, *stage.staged.values()}))
    after = replace(
        before,
        published_us=stage.frontiers.seal_us,
        reached_us=stage.frontiers.reached_us,
        complete_us=stage.frontiers.complete_us(stage.source),
        tokens=tokens,
        definition=stage.source.definition_hash(),
        run_id=stage.run_id,
    )
    publication.commit(stage.lake, stage.source, stage.fence, after)
    stage.summary.update(published_us=after.published_us, moved=True)
