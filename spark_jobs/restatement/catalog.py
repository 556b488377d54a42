"""Create what a source needs: databases, tables and the views that users read. Two catalog listings when all is
there.

Tables follow a changed definition before a run writes them, views only once it is published: until then every name
that users read shows what it showed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from spark_jobs.restatement.definitions import Definition, definitions
from spark_jobs.sources import Source
from spark_jobs.storage import bronze_views, past, views
from spark_jobs.storage.chain_tables import CHAINS
from spark_jobs.storage.chain_views import chain_views
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.sql import qualified
from spark_jobs.storage.tables import BELOW_HORIZON, DATABASES, SHARED, STATE, VALIDITY, chunks, updates


def ensure_source(lake: Lake, source: Source, known: Collection[Source]) -> None:
    """Create the source's databases, tables and views where they are missing.

    `known` are all sources of this installation: views over several sources hold those that have tables.
    """
    own = definitions(source)
    chains = [CHAINS] if source.keeps_chains else []
    tables = [*SHARED, *chains, chunks(source), updates(source), *[d.table() for d in own]]
    new_tables = lake.ensure(DATABASES, tables)
    of_updates = updates(source)
    if of_updates not in new_tables and BELOW_HORIZON.name not in lake.read(of_updates).columns:
        # a table that an older version made: everything in it counts
        lake.define(of_updates.added([BELOW_HORIZON]))
    if not new_tables:
        return
    created = {table.qualified for table in new_tables}
    _create_shared_views(lake, source, known)
    if CHAINS.qualified in created:
        _define(lake, chain_views())
    for definition in own:
        if definition.table().qualified in created:
            _define(lake, _window_names(definition))
    if updates(source).qualified in created:
        _define(lake, _state_names(source))
    _define_due(lake, source, known)


def widen_tables(lake: Lake, source: Source) -> None:
    """Let the tables of rows and of windows have the columns of a changed definition.

    Raises:
        TableDiffers: the change is none of columns alone.
    """
    for table in (chunks(source), updates(source), *[definition.table() for definition in definitions(source)]):
        lake.widen(table)


def follow_definition(lake: Lake, source: Source, known: Collection[Source], before: Iterable[str]) -> None:
    """Let the names that users read show the definition that is published now; `before`: the windows until now."""
    for definition in definitions(source):
        _define(lake, _window_names(definition))
    _define(lake, _state_names(source))
    if source.keeps_chains:
        _define(lake, chain_views())
    elsewhere = {window for other in known for window in other.windows}
    for gone in sorted({*before} - elsewhere - {*source.windows}):
        lake.define(f"DROP FUNCTION IF EXISTS {qualified('silver', f'{gone}_as_of')}")
        for view in (f"{gone}_causes", f"{gone}_changes", gone):
            lake.define(f"DROP VIEW IF EXISTS {qualified('silver', view)}")
    _define_landed(lake, _present(lake, source, known))
    _define_due(lake, source, known)


def _define(lake: Lake, statements: Iterable[str]) -> None:
    for statement in statements:
        lake.define(statement)


def _window_names(definition: Definition) -> Iterator[str]:
    """A window's view, the function that reads it as of a time, its changelog and what caused each change."""
    source, table = definition.source, definition.table()
    yield views.window_view(source, definition.name, table, definition.identity, definition.final_condition())
    yield past.window_as_of(source, definition.name, table, definition.identity)
    yield past.changes_view("silver", definition.name, source, table, definition.value_columns())
    listed = list(dict.fromkeys([*definition.identity, "window_end"]))
    yield past.causes_view("silver", definition.name, source, listed, definition.behind_condition())


def _state_names(source: Source) -> Iterator[str]:
    """The same of a source's state; nothing for a source without."""
    if source.state is None:
        return
    held = {column.name for column in VALIDITY} | {"source"}
    yield views.source_state_view(source)
    yield past.source_state_as_of(source)
    yield past.changes_view("gold", source.name, source, STATE, [c for c in STATE.columns if c.name not in held])
    yield past.causes_view("gold", source.name, source, ["entity"], "u.entity = c.entity")


def _create_shared_views(lake: Lake, source: Source, known: Collection[Source]) -> None:
    """The names that all sources share; the publications first, since changelogs read them."""
    present = _present(lake, source, known)
    shared = [past.publications_view(), views.late_view(), views.state_view(), past.late_as_of(), past.state_as_of()]
    _define(lake, [*shared, bronze_views.quarantine_view(), bronze_views.duplicates_view()])
    _define_landed(lake, present)


def _define_landed(lake: Lake, present: list[Source]) -> None:
    """What all sources landed, as chunks and as rows."""
    _define(lake, [bronze_views.chunks_view(present), bronze_views.deltas_view(present)])


def _define_due(lake: Lake, source: Source, known: Collection[Source]) -> None:
    """`silver.corrections`, of what every source knows and what is not due yet."""
    shown = lake.names("silver")
    selects = [select for one in _present(lake, source, known) for select in _due(one, shown)]
    lake.define(past.corrections_view(selects))


def _due(source: Source, shown: set[str]) -> Iterator[str]:
    """What of one source is not due; `shown` are the names of silver, without windows that nobody has accepted yet."""
    yield past.due_deltas(source)
    for definition in definitions(source):
        if definition.window.keep_us is not None and definition.name in shown:
            yield past.due_windows(source, definition.name, definition.identity, definition.window.keep_us)


def _present(lake: Lake, source: Source, known: Collection[Source]) -> list[Source]:
    """The sources that have tables, by name."""
    bronze = lake.names_if_present("bronze")
    present = [s for s in known if s.name != source.name and chunks(s).table in bronze] + [source]
    return sorted(present, key=lambda s: s.name)
