"""Settling: it keeps the list of published tokens short, and removes the rows that no publication names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import LATE, STATE, VALIDITY
from spark_jobs.storage.lakes.lake import Lake, RunLake

KEPT = 64
"""Newest tokens that stay listed: two a run, so an attempt given up a month of daily runs ago is surely no longer at
work."""

AT_ONCE = 64
"""Tokens that are settled together. A sweep reads each history table's tokens, so it is too costly for every run."""


def settle(lake: RunLake, source: Source, publication: Publication) -> Publication:
    """The same publication with its oldest tokens settled, once there are enough of them; sweeps rows of given-up
    attempts."""
    if len(publication.tokens) < KEPT + AT_ONCE:
        return publication
    through = publication.tokens[-KEPT - 1]
    for table in history_tables(lake, source):
        _sweep(lake, source, table, publication, through)
    return replace(publication, settled=through, tokens=publication.tokens[-KEPT:])


def history_tables(lake: Lake, source: Source) -> list[Table]:
    """The tables whose rows are visible by token: the shared ones, and the windows' of this source."""
    window_tables = [f"{definition}_history" for definition in source.windows]
    present = lake.catalog.names("silver")
    chains = [CHAINS] if CHAINS.table in lake.catalog.names(CHAINS.database) else []
    return [STATE, LATE, *chains, *[Table("silver", name, "", VALIDITY) for name in window_tables if name in present]]


def sweep_given_up(lake: RunLake, source: Source, publication: Publication, staged: Iterable[int]) -> dict[str, int]:
    """Remove the rows of given-up attempts: their tokens are neither in a publication nor in `staged`, the current
    run's. Returns the number of removed rows by table."""
    removed = {}
    for table in history_tables(lake, source):
        given_up = _given_up(lake, source, table, publication)
        for token in staged:
            given_up.pop(token, None)
        if given_up:
            lake.delete_tokens(table, sorted(given_up), _sharer(source, table))
            removed[table.qualified] = given_up.total()
    return dict(sorted(removed.items()))


def _sweep(lake: RunLake, source: Source, table: Table, publication: Publication, through: int) -> None:
    tokens = sorted(token for token in _given_up(lake, source, table, publication) if token <= through)
    if tokens:
        lake.delete_tokens(table, tokens, _sharer(source, table))


def _given_up(lake: Lake, source: Source, table: Table, publication: Publication) -> Counter[int]:
    """The tokens of rows that the publication neither names nor has settled, with the number of rows of each."""
    of_source = None if _sharer(source, table) is None else {"source": [source.name]}
    token = pc.field("token")
    where = (token > publication.settled) & ~token.isin(pa.array(publication.tokens, pa.int64()))
    counts = Counter[int]()
    for rows in lake.stored(table, ["token"], where, of_source).tables():
        counts.update({count["values"]: count["counts"] for count in pc.value_counts(rows["token"]).to_pylist()})
    return counts


def _sharer(source: Source, table: Table) -> str | None:
    """The source's name if several sources share the table, else None."""
    return source.name if any(column.name == "source" for column in table.columns) else None
