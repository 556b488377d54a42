"""Create what a source needs: databases, tables and the views that users read. Two catalog listings when all is
there."""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.restatement.definitions import definitions
from spark_jobs.sources import Source
from spark_jobs.storage import views
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import DATABASES, SHARED, chunks, updates


def ensure_source(lake: Lake, source: Source, known: Iterable[Source], *, changed: bool = False) -> None:
    """Create the source's databases, tables and views where they are missing; its views anew if its definition
    `changed`.

    `known` are all sources of this installation: views over several sources hold those that have tables.
    """
    own = [chunks(source), updates(source), *[d.table() for d in definitions(source)]]
    new_tables = lake.ensure(DATABASES, [*SHARED, *own])
    if new_tables or changed:
        _create_views(lake, source, known)


def _create_views(lake: Lake, source: Source, known: Iterable[Source]) -> None:
    for definition in definitions(source):
        lake.run(
            views.window_view(
                source, definition.name, definition.table(), definition.identity, definition.final_condition()
            )
        )
    lake.run(views.late_view())
    lake.run(views.state_view())
    if source.state is not None:
        lake.run(views.source_state_view(source))
    bronze = lake.names("bronze")
    present = [s for s in known if s.name != source.name and chunks(s).table in bronze] + [source]
    present.sort(key=lambda s: s.name)
    lake.run(views.chunks_view(present))
    lake.run(views.deltas_view(present))
