"""Queries of the landed rows of a source: the chunks of `bronze.<source>_chunks` whose landing is in the ledger.

They read files in the calling process: the index of the table names the row groups (`storage.delta.chunk_index`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks import Latest, PartReader, StoredLayout, check_query_names
from spark_jobs.engine.columns import Ints
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.sources import Source, did_you_mean
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.delta.chunk_index import chunks_in, groups_of
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.descriptions.column_types import INSTANT, arrow_type, arrow_type_of
from spark_jobs.storage.descriptions.tables import FILES, chunks
from spark_jobs.storage.lakes.lake import TableReader
from spark_jobs.trace import frontiers
from spark_jobs.trace.expiry import check_query
from spark_jobs.trace.frontiers import NO_HORIZON_US


class UnknownTimeline(ParameterError):
    """The source declares no such timeline. Facts: `source`, `timeline`."""

    code = "unknown_timeline"


class UnknownComponent(ParameterError):
    """The source declares no such column. Facts: `source`, `component`."""

    code = "unknown_component"


class NothingLanded(TidemarkError):
    """The source has no chunk table yet. Fact: `source`."""

    code = "nothing_landed"


class SourceChunks:
    """Range and latest-at queries of the rows of a source that have landed at the time of the query.

    Args:
        lake: the lake.
        source: the source; its columns are the components, its timelines the timelines.
    """

    def __init__(self, lake: TableReader, source: Source) -> None:
        self._lake, self._source, self._table = lake, source, chunks(source)

    def range_query(
        self, entity: str, timeline: str, lo_us: int, hi_us: int, components: Sequence[str] | None = None
    ) -> pa.Table:
        """The entity's rows with a time in `[lo_us, hi_us]`, both inclusive, and a value of any of the components.

        Times are microseconds since 1970. Columns: `row_id`, `time` (timestamp in UTC) and the components (None: all
        columns of the source), by (time, sequence, row id). For an unknown entity or an inverted range, there are no
        rows.

        Raises:
            NothingLanded: no drop of the source has landed yet.
            UnknownTimeline, UnknownComponent: the source does not declare it.
            RowsExpired: rows of the range may have left bronze.
            ParameterError: a name is no string, or a time no whole number of 64 signed bits.
        """
        names = self._check(timeline, components)
        answer = self._reader(timeline, names).range_query(entity, timeline, lo_us, hi_us, names)
        if lo_us <= hi_us:
            # after the rows: the frontiers name an expiry before it removes any
            check_query(self._source, self._rows_from_us(), lo_us)
        columns = {"row_id": answer["row_id"], "time": answer["time"].cast(INSTANT)}
        columns |= {name: self._cast(name, answer[name]) for name in names}
        return pa.table(columns)

    def latest_at(
        self, entity: str, timeline: str, at_us: int, components: Sequence[str] | None = None
    ) -> dict[str, Latest]:
        """Per component (None: all columns), the value with the greatest (time, sequence, row id) at or before `at_us`.

        `at_us` is in microseconds since 1970. Components without a value are left out.

        Raises:
            NothingLanded: no drop of the source has landed yet.
            UnknownTimeline, UnknownComponent: the source does not declare it.
            RowsExpired: the value of a component may have left bronze, as no row that is surely there has one.
            ParameterError: a name is no string, or a time no whole number of 64 signed bits.
        """
        names = self._check(timeline, components)
        latest = self._reader(timeline, names).latest_at(entity, timeline, at_us, names)
        times = [latest[name].time if name in latest else None for name in names]
        least_us = None if None in times else min((time for time in times if time is not None), default=at_us)
        check_query(self._source, self._rows_from_us(), least_us)
        return latest

    def _rows_from_us(self) -> int:
        """The time from which on all rows are there. Without `retention.bronze` no row has ever left: see
        `check_still_declared`."""
        if self._source.retention.bronze_us is None:
            return NO_HORIZON_US
        token = publication.load(self._lake, self._source).token
        return frontiers.load(self._lake, self._source, near=token).rows_from_us

    def _check(self, timeline: str, components: Sequence[str] | None) -> list[str]:
        components_wanted = check_query_names(timeline, [*self._source.columns] if components is None else components)
        declared = self._source.timelines
        if timeline not in declared:
            raise UnknownTimeline(
                expected=f"one of the timelines {', '.join(declared)} of {self._source.name}",
                found=f"{timeline!r}{did_you_mean(timeline, declared)}",
                source=self._source.name,
                timeline=timeline,
            )
        names = list(dict.fromkeys(components_wanted))
        unknown = [name for name in names if name not in self._source.columns]
        if unknown:
            raise UnknownComponent(
                expected=f"some of the columns {', '.join(self._source.columns)} of {self._source.name}",
                found=f"{unknown[0]!r}{did_you_mean(unknown[0], self._source.columns)}",
                source=self._source.name,
                component=unknown[0],
            )
        return names

    def _reader(self, timeline: str, components: Sequence[str]) -> PartReader:
        sequence = self._source.sequence
        types = {name: arrow_type_of(self._source.columns[name]) for name in (*components, *sequence)}
        return PartReader(self._parts, StoredLayout((timeline,), types), has_history=True, sequence=sequence)

    def _parts(self, entity: str, timeline: str, lo_us: int, hi_us: int) -> _RowGroups:
        handle = self._lake.folder.handle(self._table)
        groups = groups_of(handle, entity, timeline, lo_us, hi_us)
        if groups is None:
            raise _nothing_landed(self._source)
        landings = None
        if not pc.all(groups["counted"]).as_py():
            # after the files: all files of a landing that is in the ledger are in the table before, in one commit
            rows = self._lake.records(FILES, pc.field("source") == self._source.name)
            landings = pa.array(sorted({row["landing"] for row in rows}), pa.int64())
        types = {column.name: arrow_type(column.type) for column in self._table.columns}
        return _RowGroups(handle, entity, types, groups, landings)

    def _cast(self, component: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = arrow_type_of(self._source.columns[component])
        return pa.chunked_array([pa.array(column.to_pylist(), kind)]) if column.type != kind else column


def _nothing_landed(source: Source) -> NothingLanded:
    return NothingLanded(
        expected=f"a landed drop of {source.name}",
        found="none",
        consequence="there is nothing to query",
        next_step=f"land one with `tidemark run {source.name} --from … --to …`",
        source=source.name,
    )


@dataclass(frozen=True)
class _RowGroups:
    """An entity's chunks in row groups, each group a part: the contract `engine.chunks.part_reader.EntityParts`.

    `types`: the columns of the table. `landings`: the landings that count; None: those of all chunks do.
    """

    handle: TableHandle
    entity: str
    types: dict[str, pa.DataType]
    groups: pa.Table
    landings: pa.Array | None

    @property
    def least(self) -> Ints:
        """The least time of each group."""
        times: Ints = self.groups["least"].to_numpy()
        return times

    @property
    def greatest(self) -> Ints:
        """The greatest time of each group."""
        times: Ints = self.groups["greatest"].to_numpy()
        return times

    def read(self, numbers: Ints, columns: Sequence[str]) -> pa.Table:
        """The chunks in the groups of these numbers that count."""
        schema = pa.schema([(name, self.types[name]) for name in columns])
        rows = chunks_in(self.handle, self.groups.take(pa.array(numbers)), self.entity, schema)
        if self.landings is None:
            return rows
        return rows.filter(pc.is_in(rows["landing"], value_set=self.landings))
