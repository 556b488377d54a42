"""Numbers of a source's published windows and states, counted from their files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.restatement import CLOSING, LIVE, without_closed
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.restatement.published import published_files
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication, visible_rows
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.tables import STATE
from spark_jobs.storage.descriptions.times import instant

_BOUNDS = ("window_start", "window_end")


@dataclass(frozen=True)
class WindowFigures:
    """The numbers of the published windows of a definition.

    `final`: the number of windows that no drop can change any more. `restated`: the number of windows that were
    published again, at most `most_revisions` times. `by_drop`: the number of windows that begin in each drop, by the
    drop's number.
    """

    definition: str
    windows: int
    first_start: datetime | None
    last_end: datetime | None
    final: int
    restated: int
    most_revisions: int
    by_drop: dict[int, int]


def published_windows(lake: HeldLake, definition: Definition) -> WindowFigures | None:
    """The numbers of the windows in `silver.<definition>`; None if it has no table yet, or nothing is published."""
    table, current = definition.table(), publication.load(lake, definition.source)
    if lake.version(table) < 0 or not current.published_us:
        return None
    return lake.remember(
        (table.qualified, "windows"), (current, lake.version(table)), lambda: _windows(lake, definition, current)
    )


def _windows(lake: HeldLake, definition: Definition, current: Publication) -> WindowFigures:
    rows = _live_rows(lake, definition, current)
    start, end = (rows.column(bound).cast(pa.int64()).to_numpy() for bound in _BOUNDS)
    revision = rows.column("revision").to_numpy()
    drops = definition.source.drops
    begins, counts = np.unique(drops.numbers_at(start), return_counts=True)
    least = definition.least_open(np.array([current.complete_us], np.int64))
    final = 0
    if least is not None and rows.num_rows:
        final = int(np.count_nonzero(definition.kind.closes(start, end) - int(definition.kind.half_open) < least[0]))
    return WindowFigures(
        definition.name,
        rows.num_rows,
        pc.min(rows.column("window_start")).as_py(),
        pc.max(rows.column("window_end")).as_py(),
        final,
        int(np.count_nonzero(revision)),
        int(revision.max()) if rows.num_rows else 0,
        dict(zip(begins.tolist(), counts.tolist(), strict=True)),
    )


def _live_rows(lake: HeldLake, definition: Definition, current: Publication) -> pa.Table:
    """The published rows that are not closed.

    Few rows are closed between two foldings. So only rows that may be closed are compared with the closing rows.
    """
    columns = dict.fromkeys([*definition.identity, *_BOUNDS, "revision", "known_from", "known_to", "era", "token"])
    rows = lake.rows(definition.table(), list(columns), visible_rows(current))
    published = pa.scalar(instant(current.published_us), INSTANT)
    live = rows.filter((pc.field("era") == LIVE) & (pc.field("known_from") < published))
    closings = rows.filter((pc.field("era") == CLOSING) & (pc.field("known_to") < published))
    may_be_closed = pc.is_in(live.column("window_start"), closings.column("window_start").combine_chunks())
    near = pa.concat_tables([live.filter(may_be_closed), closings])
    others = live.filter(pc.invert(may_be_closed)).drop_columns(["era"])
    return pa.concat_tables([others, without_closed(near, definition.identity)])


def published_entities(lake: HeldLake, source: Source) -> int | None:
    """The number of entities with a published state; None for a source without states."""
    current = publication.load(lake, source)
    if source.state is None or lake.version(STATE) < 0:
        return None

    def count() -> int:
        of_source = pc.field("source") == source.name
        rows = published_files(lake, STATE, current, ["source", "entity", "known_from", "era"], of_source).whole()
        return without_closed(rows, ["source", "entity"]).num_rows

    return lake.remember((STATE.qualified, source.name), (current, lake.version(STATE)), count)
