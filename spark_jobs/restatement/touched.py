"""The updates that a publication must take in, and the rows that are standing after it.

Let `published` and `reached` be the frontiers of the publication in force, and `seal` and `reached'` those of the run.
An update is *touching* if it is sealed and not future-dated now, and was not both before. That is `time < seal and
event_time < reached'`, and `time >= published or event_time >= reached`. An update that landed below the horizon of
its time is neither touching nor standing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.definition import Definition
from spark_jobs.definitions.versions import LANDED_PARTS
from spark_jobs.restatement.cutoffs import Cutoffs
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.tables import BELOW_HORIZON, updates
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.trace.frontiers import NO_HORIZON_US, SourceFrontiers
from spark_jobs.trace.placing import BATCH
from spark_jobs.trace.source_plane import stored_counting_rows, trace_handles

if TYPE_CHECKING:
    from pyspark.sql import Column

MAX_RANGES = 32
"""The most ranges of time in one read; if there are more, the nearest ones are joined. Each range is a predicate
against which every file is tested."""

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a run: the frontiers up to which it publishes, and the publication in force.

    `everything`: the definition changed, so all rows touch. `changed`: the parts of it that changed; None: all.
    `cutoffs`: by definition, for definitions with a grace.
    """

    source: Source
    frontiers: SourceFrontiers
    publication: Publication
    everything: bool = False
    changed: frozenset[str] | None = None
    cutoffs: Mapping[str, Cutoffs] = field(default_factory=dict)

    def of_parts(self, *parts: str) -> Self:
        """The scope for results that depend on these parts of the definition. All rows touch only if one of these parts
        changed, or one of the parts that landed rows depend on."""
        if self.changed is None or self.changed & {*parts, *LANDED_PARTS}:
            return self
        return replace(self, everything=False)

    def by_window(self, definitions: Iterable[Definition]) -> list[tuple[Self, list[Definition]]]:
        """The definitions in at most two groups, each with its scope: those for which all rows touch, and the
        others."""
        scopes = [(definition, self.of_parts(definition.part)) for definition in definitions]
        groups = [[pair for pair in scopes if pair[1].everything is everything] for everything in (True, False)]
        return [(group[0][1], [definition for definition, _ in group]) for group in groups if group]

    @property
    def known_from_us(self) -> int:
        """The time that every change of this publication carries: one tick before its seal."""
        return self.frontiers.seal_us - 1

    def touching_rows(self, lake: Lake, columns: Sequence[str]) -> StoredRows:
        """The touching updates, as pyarrow reads them from the trace's files. Both bounds are on columns with
        statistics, so files whose updates are all published are skipped."""
        return self.due_rows(lake, columns, None if self.everything else self.freshness())

    def due_rows(self, lake: Lake, columns: Sequence[str], where: pc.Expression | None = None) -> StoredRows:
        """The updates of the trace that count, are sealed, are not future-dated, and meet `where`."""
        reached = pc.field("event_time") < instant(self.frontiers.reached_us)
        due = reached if where is None else reached & where
        return stored_counting_rows(lake, self.source, self.frontiers.arrangement, columns, due)

    def freshness(self) -> pc.Expression:
        """The condition that an update which is due now was not due at the last publication."""
        fresh = pc.field("time") >= instant(self.publication.published_us)
        return fresh | (pc.field("event_time") >= instant(self.publication.reached_us))

    @property
    def has_horizon(self) -> bool:
        """True if rows may be below a horizon."""
        return self.source.retention.horizon_us is not None or self.frontiers.horizon_us != NO_HORIZON_US

    def below_horizon(self, lake: Lake, columns: Sequence[str]) -> StoredRows:
        """The updates of the trace that landed below the horizon of their time, and are not future-dated. The column
        has statistics, so files without such updates are skipped."""
        below = pc.is_valid(pc.field(BELOW_HORIZON.name)) & (
            pc.field("event_time") < instant(self.frontiers.reached_us)
        )
        return lake.stored(updates(self.source), columns, below, {BATCH: trace_handles(self.frontiers.arrangement)})

    def nothing_to_do(self) -> bool:
        """True if this publication would show the same as the publication in force."""
        published = self.publication
        return (
            not self.everything
            and self.frontiers.seal_us == published.published_us
            and self.frontiers.reached_us == published.reached_us
        )


def instant(time_us: int) -> pa.Scalar:
    """A time in microseconds as a pyarrow scalar, of the type that the tables have."""
    return pa.scalar(time_us, INSTANT)


def at(time_us: int) -> Column:
    """A time in microseconds as a timestamp literal of Spark."""
    return F.timestamp_micros(F.lit(time_us))


def coalesce_ranges(ranges: list[Range], limit: int = MAX_RANGES) -> list[Range]:
    """The inclusive ranges, sorted, with overlapping and adjoining ones joined. Then the nearest ones are joined until
    at most `limit` are left."""
    merged: list[Range] = []
    for lo, hi in sorted(ranges):
        if merged and lo <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
        else:
            merged.append((lo, hi))
    if len(merged) <= limit:
        return merged
    gaps = sorted(range(1, len(merged)), key=lambda i: merged[i][0] - merged[i - 1][1])
    joined = set(gaps[: len(merged) - limit])
    result: list[Range] = []
    for i, (lo, hi) in enumerate(merged):
        if i in joined:
            result[-1] = (result[-1][0], hi)
        else:
            result.append((lo, hi))
    return result
