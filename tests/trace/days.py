"""A source's trace driven day by day without files: advance, publish, maintain; beside it the list of all updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.gates.measures import trace as measure_trace
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.leases import visit
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.tables import FILES, FRONTIERS, PUBLISHED, row_columns, updates
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.frames import frame_of
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import frontiers
from spark_jobs.trace.advance import advance
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.maintenance import Budget, Upkeep, maintain
from spark_jobs.trace.source_plane import batch_rows, trace_handles

DAY_US = 86_400_000_000
Update = tuple[int, int, int]
"""Row id, event time in microseconds since the source's start, diff."""


@dataclass(frozen=True)
class Landed:
    """Rows that have landed, all in one part."""

    table: pa.Table

    @property
    def n_rows(self) -> int:
        return self.table.num_rows

    @property
    def n_bytes(self) -> int:
        return self.table.nbytes

    def split(self, most_rows: int) -> list[Landed]:
        return [self]

    def tables(self) -> Iterator[pa.Table]:
        yield self.table


@dataclass
class Days:
    """One source on an empty lake. `history` holds (row id, visible time, diff) of everything ever appended."""

    lake: SparkLake
    source: Source
    home: Path
    token: int = 0
    history: list[Update] = field(default_factory=list)
    drops: dict[int, int] = field(default_factory=dict)
    """By row id the drop that brought the row: what is taken back is the row as it came."""

    def __post_init__(self) -> None:
        self.lake.catalog.ensure({"trace": "", "bronze": ""}, [FRONTIERS, PUBLISHED, FILES, updates(self.source)])

    @property
    def start_us(self) -> int:
        return self.source.drops.start_us

    def fence(self) -> Fence:
        with visit(self.home / "leases", source=self.source.name, wait_s=0) as lease:
            self.token = lease.fence.token
            return lease.fence

    def standing(self) -> SourceFrontiers:
        return frontiers.load(self.lake, self.source, near=self.token)

    def rows(self, day: int, added: Iterable[Update]) -> Landed:
        columns = row_columns(self.source)
        made = [
            {
                "row_id": row_id,
                "seq_no": self.drops.setdefault(row_id, day),
                "entity": f"e{row_id % 5}",
                "event_time": instant(self.start_us + time),
            }
            | {"diff": diff, "extra": {"b": "1", "a": str(row_id)}}
            for row_id, time, diff in added
        ]
        stored = self.lake.destination(updates(self.source)).schema
        schema = pa.schema([stored.field(name) for name in [*(c.name for c in columns), "diff"]])
        return Landed(pa.Table.from_pylist(made, schema=schema))

    def land(self, day: int, added: list[Update], *, last: int | None = None) -> frontiers.Move:
        """One run's `seal`; the model takes the updates in at the time at which they must become visible."""
        rows = self.rows(day, added) if added else None
        move = self.advance(range(day, (day if last is None else last) + 1), rows)
        lo_us = self.start_us + day * DAY_US
        for row_id, time, diff in added:
            self.history.append((row_id, max(self.start_us + time, lo_us, move.before.seal_us), diff))
        return move

    def advance(self, drops: range, rows: Landed | None) -> frontiers.Move:
        """The work of one run's `seal` on rows that have landed with these drops."""
        before, fence = self.standing(), self.fence()
        moved = advance(
            self.lake,
            self.source,
            fence,
            "run",
            frontiers=before,
            drops=[drops],
            hi_us=self.start_us + drops.stop * DAY_US,
            landed=rows,
            landed_through=before.landed_through if rows is None else fence.token,
            unpublished=False,
            publication=publication.load(self.lake, self.source),
        )
        return frontiers.Move(fence.token, before, moved.after)

    def publish(self) -> None:
        """Publish up to the seal."""
        standing, fence = self.standing(), self.fence()
        after = replace(
            publication.load(self.lake, self.source), published_us=standing.seal_us, reached_us=standing.reached_us
        )
        publication.commit(self.lake, self.source, fence, after)

    def upkeep(self, *, now_us: int = 0, budget: Budget | None = None) -> tuple[frontiers.Move, Upkeep]:
        """One run's upkeep, before it publishes."""
        fence = self.fence()
        given = {} if budget is None else {"budget": budget}
        standing, current = self.standing(), publication.load(self.lake, self.source)
        done = maintain(
            self.lake, self.source, fence, "run", frontiers=standing, publication=current, now_us=now_us, **given
        )
        return frontiers.Move(fence.token, done.before, done.after), done

    def measured(self, move: frontiers.Move, landed: int = 0) -> dict[str, int]:
        """What the trace gate measures of a move; its ledger says that `landed` rows were to be added."""
        row = {"source": self.source.name, "landing": move.token, "rows": landed}
        self.lake.append(FILES, frame_of(self.lake.spark, FILES, [row]), None)
        landings = [move.token]
        given: dict[str, Any] = {"before": move.before, "after": move.after, "token": move.token, "landings": landings}
        return measure_trace(self.lake, self.source, **given).values

    def read(self, *times_us: int) -> dict[int, Counter[int]]:
        """By time, the copies by row id of the updates up to it, from the table in one query."""
        rows = batch_rows(self.lake, self.source, trace_handles(self.standing().arrangement))
        sums = [F.sum(F.when(F.col("time") <= instant(at), F.col("diff"))).alias(f"at_{at}") for at in times_us]
        found = rows.groupBy("row_id").agg(*sums).collect()
        return {at: Counter({row.row_id: row[f"at_{at}"] for row in found if row[f"at_{at}"]}) for at in times_us}

    def model(self, at_us: int) -> Counter[int]:
        """The same from the history."""
        found: Counter[int] = Counter()
        for row_id, time_us, diff in self.history:
            if time_us <= at_us:
                found[row_id] += diff
        return Counter({row_id: n for row_id, n in found.items() if n})
