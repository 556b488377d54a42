"""Create what a source needs: databases, tables and the views that users read. Two catalog listings when all is
there.

Tables follow a changed definition before a run writes them, views only once it is published: until then every name
that users read shows what it showed.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.restatement.definitions import Definition, definitions
from spark_jobs.sources import Source
from spark_jobs.storage import views
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.sql import qualified
from spark_jobs.storage.tables import DATABASES, SHARED, chunks, updates


def ensure_source(lake: Lake, source: Source, known: Iterable[Source]) -> None:
    """Create the source's databases, tables and views where they are missing.

    `known` are all sources of this installation: views over several sources hold those that have tables.
    """
    own = definitions(source)
    new_tables = lake.ensure(DATABASES, [*SHARED, chunks(source), updates(source), *[d.table() for d in own]])
    if not new_tables:
        return
    created = {table.qualified for table in new_tables}
    for definition in own:
        if definition.table().qualified in created:
            lake.run(_window_view(definition))
    if updates(source).qualified in created and source.state is not None:
        lake.run(views.source_state_view(source))
    _create_shared_views(lake, source, known)


def widen_tables(lake: Lake, source: Source) -> None:
    """Let the tables of windows have the columns of a changed definition.

    Raises:
        TableDiffers: the change is none of columns alone.
    """
    for definition in definitions(source):
        lake.widen(definition.table())


def follow_definition(lake: Lake, source: Source, known: Iterable[Source], before: Iterable[str]) -> None:
    """Let the views that users read show the definition that is published now; `before`: the windows until now."""
    for definition in definitions(source):
        lake.run(_window_view(definition))
    if source.state is not None:
        lake.run(views.source_state_view(source))
    elsewhere = {window for other in known for window in other.windows}
    for gone in sorted({*before} - elsewhere - {*source.windows}):
        lake.run(f"DROP VIEW IF EXISTS {qualified('silver', gone)}")


def _window_view(definition: Definition) -> str:
    return views.window_view(
        definition.source, definition.name, definition.table(), definition.identity, definition.final_condition()
    )


def _create_shared_views(lake: Lake, source: Source, known: Iterable[Source]) -> None:
    lake.run(views.late_view())
    lake.run(views.state_view())
    bronze = lake.names("bronze")
    present = [s for s in known if s.name != source.name and chunks(s).table in bronze] + [source]
    present.sort(key=lambda s: s.name)
    lake.run(views.chunks_view(present))
    lake.run(views.deltas_view(present))
