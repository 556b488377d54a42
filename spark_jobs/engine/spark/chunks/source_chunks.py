"""Queries of the landed rows of a source: the chunks of `bronze.<source>_chunks` whose landing is in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.chunks import checks
from spark_jobs.engine.chunks.reads import Latest
from spark_jobs.engine.chunks.stored import StoredLayout
from spark_jobs.engine.spark.chunks.reading import ChunkReader
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.sources import Source, did_you_mean
from spark_jobs.storage.descriptions.column_types import INSTANT, arrow_type_of
from spark_jobs.storage.descriptions.tables import FILES, chunks
from spark_jobs.storage.lakes.spark_lake import SparkLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        spark: a session, classic or Connect.
        source: the source; its columns are the components, its timelines the timelines.

    Raises:
        NothingLanded: no drop of the source has landed yet.
    """

    def __init__(self, spark: SparkSession, source: Source) -> None:
        self._lake, self._source = SparkLake(spark), source
        self._landed: set[int] = set()
        if not spark.catalog.tableExists(chunks(source).qualified):
            raise NothingLanded(
                expected=f"a landed drop of {source.name}",
                found="none",
                consequence="there is nothing to query",
                next_step=f"land one with `tidemark run {source.name} --from … --to …`",
                source=source.name,
            )

    def range_query(
        self, entity: str, timeline: str, lo_us: int, hi_us: int, components: Sequence[str] | None = None
    ) -> pa.Table:
        """The entity's rows with a time in `[lo_us, hi_us]`, both inclusive, and a value of any of the components.

        Times are microseconds since 1970. Columns: `row_id`, `time` (timestamp in UTC) and the components (None: all
        columns of the source), by (time, sequence, row id). For an unknown entity or an inverted range, there are no
        rows.

        Raises:
            UnknownTimeline, UnknownComponent: the source does not declare it.
            ParameterError: a name is no string, or a time no whole number of 64 signed bits.
        """
        names = self._check(timeline, components)
        answer = self._reader(timeline, names).range_query(entity, timeline, lo_us, hi_us, names)
        columns = {"row_id": answer["row_id"], "time": answer["time"].cast(INSTANT)}
        columns |= {name: self._cast(name, answer[name]) for name in names}
        return pa.table(columns)

    def latest_at(
        self, entity: str, timeline: str, at_us: int, components: Sequence[str] | None = None
    ) -> dict[str, Latest]:
        """Per component (None: all columns), the value with the greatest (time, sequence, row id) at or before `at_us`.

        `at_us` is in microseconds since 1970. Components without a value are left out.

        Raises:
            UnknownTimeline, UnknownComponent: the source does not declare it.
            ParameterError: a name is no string, or a time no whole number of 64 signed bits.
        """
        names = self._check(timeline, components)
        return self._reader(timeline, names).latest_at(entity, timeline, at_us, names)

    def _check(self, timeline: str, components: Sequence[str] | None) -> list[str]:
        checks.check_names(timeline=timeline)
        declared = self._source.timelines
        if timeline not in declared:
            raise UnknownTimeline(
                expected=f"one of the timelines {', '.join(declared)} of {self._source.name}",
                found=f"{timeline!r}{did_you_mean(timeline, declared)}",
                source=self._source.name,
                timeline=timeline,
            )
        asked = self._source.columns if components is None else checks.names(components, "components")
        names = list(dict.fromkeys(asked))
        unknown = [name for name in names if name not in self._source.columns]
        if unknown:
            raise UnknownComponent(
                expected=f"some of the columns {', '.join(self._source.columns)} of {self._source.name}",
                found=f"{unknown[0]!r}{did_you_mean(unknown[0], self._source.columns)}",
                source=self._source.name,
                component=unknown[0],
            )
        return names

    def _reader(self, timeline: str, components: Sequence[str]) -> ChunkReader:
        sequence = self._source.sequence
        types = {name: arrow_type_of(self._source.columns[name]) for name in (*components, *sequence)}
        layout = StoredLayout((timeline,), types)
        return ChunkReader(
            self._lake.spark.sql,
            chunks(self._source),
            layout,
            "timestamp_micros({})",
            counted=self._count_rows,
            sequence=sequence,
        )

    def _count_rows(self, rows: pa.Table) -> pa.Table:
        """The chunks whose landing is in the ledger."""
        met = set(rows["landing"].unique().to_pylist())
        if not met <= self._landed:
            # landings stay in the ledger, so only new ones are looked up, after the chunks that name them were read
            asked = (F.col("source") == self._source.name) & F.col("landing").isin(sorted(met - self._landed))
            self._landed.update(self._lake.read(FILES).where(asked).select("landing").toArrow()["landing"].to_pylist())
        if met <= self._landed:
            return rows
        return rows.filter(pc.is_in(rows["landing"], pa.array(sorted(self._landed), pa.int64())))

    def _cast(self, component: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = arrow_type_of(self._source.columns[component])
        return pa.chunked_array([pa.array(column.to_pylist(), kind)]) if column.type != kind else column
