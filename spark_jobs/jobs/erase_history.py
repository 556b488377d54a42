"""An erasure in the histories of windows.

Windows with the entity in their key are removed; windows that it shared with other entities are restated without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import definitions
from spark_jobs.reads.publications import publications
from spark_jobs.restatement.replayed import Moment, Region, replayed, versions_of
from spark_jobs.restatement.restater import result_schema
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication, visible_rows
from spark_jobs.storage.tables import updates
from spark_jobs.storage.times import micros
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.source_plane import stored_counting_rows


@dataclass(frozen=True)
class Restatement:
    """The changes of an erasure in the histories of windows.

    `regions`: parts of histories, each with the rows in its place; None for no rows. `since_us`: the time from which on
    the past is known of windows that can't be computed as earlier runs did; None if there are no such windows.
    """

    regions: Sequence[tuple[Region, pa.Table | None]]
    since_us: int | None = None

    def write(self, lake: Lake) -> dict[str, dict[str, int]]:
        """Change the tables, each in one commit; returns how many rows `went` and `came`, by table."""
        return {region.definition.table().qualified: _replace(lake, region, more) for region, more in self.regions}


@dataclass(frozen=True)
class _Histories:
    lake: Lake
    source: Source
    entity: str
    standing: SourceFrontiers
    shown: Publication

    def updates_of(self, columns: Sequence[str]) -> pa.Table:
        """All updates of the entity in the trace, with these columns, also those that count in no window."""
        table = updates(self.source)
        where = pc.field("entity") == self.entity
        handles = {"batch": sorted(self.standing.arrangement.handles())}
        return self.lake.stored(table, list(columns), where, handles).whole()

    def near(self, region: Region) -> pa.Table:
        """The updates of all entities that can count in a region's windows."""
        definition = region.definition
        time, reach = f"t_{definition.time}", pc.scalar(False)
        for low, high in region.rows:
            reach |= (pc.field(time) >= _at(low)) & (pc.field(time) <= _at(high))
        if definition.moves_late_rows:
            drops = self.source.drops
            for low, high in region.rows:
                first, last = (drops.number_at(t) for t in (low, high))
                reach |= (pc.field("seq_no") >= first) & (pc.field("seq_no") <= last)
        for key, values in region.keys.items():
            reach &= pc.field(f"c_{key}").isin(values)
        return stored_counting_rows(self.lake, self.source, self.standing.arrangement, region.columns, reach).whole()

    def stored(self, region: Region) -> pa.Table:
        """The region's history as it is in the table, times in microseconds."""
        definition, schema = region.definition, result_schema(region.definition)
        where = visible_rows(self.shown)
        for key, values in region.keys.items():
            where &= pc.field(key).isin(values)
        rows = self.lake.stored(definition.table(), schema.names, where).whole()
        rows = rows.filter(pa.array(region.holds(rows)))
        return pa.table([_cast(rows[field.name], field.type) for field in schema], schema=schema)


def _at(time_us: int) -> pa.Scalar:
    return pa.scalar(time_us, pa.timestamp("us", "UTC"))


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type) and pa.types.is_int64(kind):
        return column.cast(pa.timestamp("us", "UTC")).cast(kind)
    return column.cast(kind)


def histories_without(
    lake: Lake, source: Source, entity: str, standing: SourceFrontiers, shown: Publication
) -> Restatement:
    """The histories of windows as they would be without the entity; computed again, the result is the same.

    The entity's updates must still be in the trace: the windows concerned are found by them.
    """
    histories = _Histories(lake, source, entity, standing, shown)
    moments = [Moment(micros(p.published), micros(p.reached)) for p in publications(lake, source, shown)]
    regions: list[tuple[Region, pa.Table | None]] = []
    unknown = False
    for definition in definitions(source):
        columns = ["seq_no", "diff", f"t_{definition.time}", *(f"c_{key}" for key in definition.key)]
        region = Region.of(definition, histories.updates_of(columns))
        if region is None:
            continue
        more, known = (None, True) if source.entity in definition.key else _without(histories, region, moments)
        unknown = unknown or not known
        regions.append((region, more))
    return Restatement(regions, shown.published_us - 1 if unknown else None)


def _without(histories: _Histories, region: Region, moments: Sequence[Moment]) -> tuple[pa.Table, bool]:
    """The region's history without the entity, and True if it goes back as far as the stored history.

    It does not if earlier runs followed another definition: then the history begins with the newest publication.
    """
    near = histories.near(region)
    others = near.filter(pc.not_equal(near["entity"], histories.entity))
    since_us = histories.standing.arrangement.since.time or 0
    identity = region.definition.identity
    stands = versions_of(histories.stored(region), identity, since_us)
    history = replayed(region, others, moments)
    # an interrupted attempt may have written the same history already
    tries = (replayed(region, rows, moments) if rows is near else history for rows in (near, others))
    known = any(versions_of(again, identity, since_us).equals(stands) for again in tries)
    if not known:
        history = replayed(region, others, moments[-1:])
    token = histories.shown.tokens[-1] if histories.shown.tokens else histories.shown.settled
    return history.append_column("token", pa.repeat(pa.scalar(token, pa.int64()), history.num_rows)), known


def _replace(lake: Lake, region: Region, more: pa.Table | None) -> dict[str, int]:
    """Replace the region's rows in the table by `more`, in one commit; returns how many rows `went` and `came`."""
    definition = region.definition

    def change(table: pa.Table) -> pa.Table | None:
        inside = region.holds(table)
        return table.filter(pa.array(~inside)) if inside.any() else None

    looked_at = [*definition.key, "window_start"]
    came = 0 if more is None else more.num_rows
    done = lake.rewrite(definition.table(), change, looked_at, more=more if came else None)
    return {"went": done.removed, "came": came}
