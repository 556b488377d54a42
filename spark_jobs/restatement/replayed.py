"""The history of some windows worked out anew, publication by publication, from the rows that the trace has now.

A run writes the changes of its publication. From all rows with their visible times, and from the times of all
publications, the rows that the runs wrote for a window can be made again. Without the rows of an entity, the result is
the history that the runs would have written if that entity had never existed. The kernel is the same as that of the
runs. It works on rows in memory: those near the windows concerned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.columns import Flags, Ints, numbers, within_ranges
from spark_jobs.engine.records import GREATEST_US, LEAST_US
from spark_jobs.engine.restatement import CLOSING, without_closed
from spark_jobs.engine.spark.windows import Given
from spark_jobs.restatement.reach import ranges_near, touched_hours
from spark_jobs.restatement.restater import Restater, WorkerReport, fill_columns, result_schema, row_schema
from spark_jobs.restatement.touched import Range, coalesce_ranges
from spark_jobs.restatement.window_rows import PublishedWindows, UpdatesInReach
from spark_jobs.storage.delta.data_files import StoredRows

HOUR_US = 3_600_000_000
_WHOLE: Range = (LEAST_US, GREATEST_US)


@dataclass(frozen=True, slots=True)
class Moment:
    """A publication: the time up to which it published, and the time that runs had reached, both in microseconds."""

    published_us: int
    reached_us: int

    @property
    def known_from_us(self) -> int:
        """The time that the changes of the publication carry."""
        return self.published_us - 1


@dataclass(frozen=True)
class PublicationStep:
    """A publication `now` and the one `before`; for each update, a flag that it is `due` now, and one that it is
    `touching`: it is due now and was not before."""

    before: Moment
    now: Moment
    due: Flags
    touching: Flags


def taken_in(updates: pa.Table, published: Sequence[Moment]) -> Iterator[PublicationStep]:
    """Yield the updates that each publication takes in; they have `time` and `event_time`; oldest first."""
    times, events = numbers(updates["time"]), numbers(updates["event_time"])
    for before, now in pairwise([Moment(LEAST_US, LEAST_US), *published]):
        due = (times < now.published_us) & (events < now.reached_us)
        touching = due & ((times >= before.published_us) | (events >= before.reached_us))
        yield PublicationStep(before, now, due, touching)


@dataclass(frozen=True)
class Region:
    """The windows of a definition that some rows can have changed.

    Each key column of such a window has one of the values in `keys`, and the window starts in one of the ranges
    `starts`. `rows`: the ranges of time whose rows bear on these windows.
    """

    definition: Definition
    keys: Mapping[str, pa.Array]
    starts: tuple[Range, ...]
    rows: tuple[Range, ...]

    @classmethod
    def of(cls, definition: Definition, updates: pa.Table) -> Region | None:
        """The region that these updates bear on; None if they bear on no window. They have `seq_no`, `t_<timeline>` and
        `c_<column>`."""
        drops = definition.source.drops
        lo = drops.starts(numbers(updates["seq_no"]))
        hours = touched_hours(updates, definition, lo)
        if not hours:
            return None
        keys = {key: pc.unique(updates[f"c_{key}"]).drop_null() for key in definition.key}
        if definition.kind.halo is None:
            # a session or a cell may extend to any time
            return cls(definition, keys, (_WHOLE,), (_WHOLE,))
        near = ranges_near(definition, coalesce_ranges([(h * HOUR_US, (h + 1) * HOUR_US - 1) for h in hours]), None)
        return cls(definition, keys, tuple(near), tuple(ranges_near(definition, near, None)))

    @property
    def columns(self) -> list[str]:
        """The columns of updates that `replay` reads."""
        nothing = StoredRows((), pa.schema([]), ())
        return ["entity", *UpdatesInReach(self.definition, nothing, (), None).columns]

    def holds(self, windows: pa.Table) -> Flags:
        """True for each window that is in the region, by its key columns and `window_start`."""
        inside = within_ranges(numbers(windows["window_start"]), self.starts)
        for key, values in self.keys.items():
            inside &= _among(windows[key], values)
        return inside

    def bears(self, updates: pa.Table) -> pa.Table:
        """The updates whose key is in the region."""
        inside = np.ones(updates.num_rows, np.bool_)
        for key, values in self.keys.items():
            inside &= _among(updates[f"c_{key}"], values)
        return updates.filter(pa.array(inside))


def _among(column: pa.ChunkedArray, values: pa.Array) -> Flags:
    return pc.is_in(column, value_set=values.cast(column.type)).to_numpy(zero_copy_only=False).astype(np.bool_)


def replay(region: Region, updates: pa.Table, published: Sequence[Moment]) -> pa.Table:
    """The history of the region's windows as runs would have written it, with the columns of `restater.result_schema`.

    Args:
        updates: the updates that bear on the region, with the columns that `UpdatesInReach` reads. Others are left out.
        published: the publications, oldest first.
    """
    definition = region.definition
    updates = region.bears(updates)
    schema, history = result_schema(definition), list[pa.Table]()
    live = schema.empty_table()
    for step in taken_in(updates, published):
        expired = definition.expired_us(step.now.reached_us)
        if not step.touching.any() and expired is None:
            continue
        since = step.before.published_us, step.before.reached_us
        due = updates.filter(pa.array(step.due))
        corrected = _correct(region, due, live, since, step.now.known_from_us, expired)
        corrected = corrected.filter(pa.array(region.holds(corrected)))
        history.append(corrected)
        live = _live_rows(definition, live, corrected)
    return pa.concat_tables([schema.empty_table(), *history])


def _correct(
    region: Region, rows: pa.Table, live: pa.Table, since: tuple[int, int], known_from_us: int, expired: int | None
) -> pa.Table:
    """The corrections that a publication makes, given the rows that are due and the windows that are live."""
    definition = region.definition
    stored = StoredRows((), rows.schema, tuple(rows.column_names), None, beside=rows)
    of_rows = UpdatesInReach(definition, stored, region.rows, since)
    values = pa.table({name: live[name] for name in PublishedWindows.columns(definition)})
    windows = PublishedWindows(
        definition, StoredRows((), values.schema, tuple(values.column_names), None, beside=values)
    )

    def give_rows() -> Iterator[Given]:
        for table in of_rows.tables():
            yield table, None
        for table in windows.tables():
            yield row_schema(definition).empty_table(), table

    restater = Restater(definition, known_from_us, everything=False, expired_us=expired)
    tables = [fill_columns(table, result_schema(definition)) for table in restater(give_rows(), WorkerReport())]
    return pa.concat_tables([result_schema(definition).empty_table(), *tables])


def _live_rows(definition: Definition, before: pa.Table, corrected: pa.Table) -> pa.Table:
    """The live rows, of those before and of the corrections, that no closing row ends."""
    both = pa.concat_tables([before, corrected])
    live = without_closed(both, definition.identity)
    return live.append_column("era", pa.repeat(pa.scalar("live"), live.num_rows)).select(both.column_names)


def versions_of(history: pa.Table, identity: Sequence[str], since_us: int) -> pa.Table:
    """A history in one form, whether its closed rows were folded or not: each version with its end, times in
    microseconds.

    Versions that ended by `since_us` are left out. A version that began before `since_us` begins at it. The columns
    `era`, `revision` and `token` are left out.
    """
    columns = [name for name in history.column_names if name not in ("era", "revision", "token")]
    is_closing = pc.equal(history["era"], CLOSING)
    closings = history.filter(is_closing)
    rows = history.filter(pc.invert(is_closing)).select(columns)
    same = [*identity, "known_from"]
    if closings.num_rows:
        places = rows.select(same).append_column("place", pa.array(range(rows.num_rows), pa.int64()))
        ended = places.join(closings.select([*same, "known_to"]), keys=same, join_type="left outer").sort_by("place")
        until = pc.coalesce(rows["known_to"].combine_chunks(), ended["known_to"].combine_chunks())
        rows = rows.set_column(rows.schema.get_field_index("known_to"), "known_to", until)
    from_us: Ints = np.maximum(numbers(rows["known_from"]), since_us)
    until_us = numbers(rows["known_to"], np.iinfo(np.int64).max)
    rows = rows.set_column(rows.schema.get_field_index("known_from"), "known_from", pa.array(from_us))
    rows = rows.filter(pa.array(until_us > since_us))
    return rows.sort_by([(name, "ascending") for name in same])
