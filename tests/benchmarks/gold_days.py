"""A year of daily compaction: what a late day costs beside an early one, and what of the table a day reads.

Deltas of sums, a twentieth of them a day late, over many entities of which few change a day. Every day the chains'
worker makes corrections of what that day needs of the published rows, and they are applied as a publication is. The
cost is the worker's processor time, Arrow to Arrow. Chains grow until they are long enough to be compacted, so the
first days find shorter ones: later days are told beside the tenth.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.deltas import NO_DELTA, CompactionPolicy, Frontiers, Meaning, TieredMerge
from spark_jobs.engine.spark.checkpoints import BUCKET, PLACE
from spark_jobs.restatement.chain_stretches import ROW, SEGMENT_PART
from spark_jobs.restatement.chain_worker import ChainWorker
from spark_jobs.restatement.chains import chain_schema

DAY = 1_000_000
MEANING = Meaning("add", "int64", {"n": 1, "x": "x"})
POLICY = CompactionPolicy(TieredMerge(10), delta_threshold=20)


class Year:
    """Published segments and states, day after day."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.chance = options, np.random.default_rng(5)
        self.names = pa.array([f"e{i:07d}" for i in range(options.entities)])
        self.held = pa.Table.from_pylist([], schema=chain_schema()).append_column("day", pa.array([], pa.int64()))

    def rows(self, day: int) -> pa.Table:
        """A day's deltas, as `chain_inputs` gives them."""
        count, chance = self.options.deltas_a_day, self.chance
        late = chance.random(count) < 0.05
        times = day * DAY + np.sort(chance.integers(0, DAY, count)) - late * DAY
        entity = self.names.take(pa.array(chance.integers(0, len(self.names), count)))
        return pa.table(
            {
                "entity": entity, "event_time": times, "time": np.maximum(times, day * DAY),
                "row_id": day * count + np.arange(count), "diff": np.ones(count, np.int64),
                "x": chance.integers(0, 9, count), "part": pa.array([ROW] * count),
            }
        )  # fmt: skip

    def needed(self, rows: pa.Table) -> pa.Table:
        """Of the published rows those that a run reads, see `chain_needs`."""
        least = rows.group_by("entity").aggregate([("event_time", "min")])
        place = pc.index_in(self.held["entity"], value_set=least["entity"].combine_chunks())
        first = pc.fill_null(least["event_time_min"].take(place), DAY * DAY)
        reached = pc.or_(pc.is_null(self.held["end_time"]), pc.greater_equal(self.held["end_time"], first))
        return self.held.filter(pc.and_(pc.is_valid(place), pc.fill_null(reached, fill_value=True)))

    def apply(self, made: pa.Table, day: int) -> None:
        """Corrections as a publication makes them visible."""
        place = ["part", "entity", "start_time", "start_row"]
        closing = _starts_as_numbers(made.filter(pc.equal(made["era"], "closing"))).select(place)
        numbered = _starts_as_numbers(self.held).select(place).append_column("at", pa.array(np.arange(len(self.held))))
        stays = numbered.join(closing, keys=place, join_type="left anti")["at"]
        live = made.filter(pc.equal(made["era"], "live"))
        live = live.append_column("day", pa.array(np.full(len(live), day)))
        self.held = pa.concat_tables([self.held.take(pa.array(np.sort(stays.to_numpy()))), live])


def _starts_as_numbers(table: pa.Table) -> pa.Table:
    for name in ("start_time", "start_row"):
        table = table.set_column(table.schema.get_field_index(name), name, pc.fill_null(table[name], NO_DELTA))
    return table


def worker(day: int) -> ChainWorker:
    """The worker of a day's run."""
    return ChainWorker(MEANING, POLICY, Frontiers(), (day + 1) * DAY, (day + 1) * DAY, False, chain_schema())


def days(options: argparse.Namespace) -> None:
    """Run the year and print the figure."""
    year, costs = Year(options), []
    for day in range(options.days):
        rows = year.rows(day)
        both = pa.concat_tables([rows, _starts_as_numbers(year.needed(rows))], promote_options="default")
        both = both.append_column(PLACE, pc.coalesce(both["event_time"], both["start_time"], NO_DELTA))
        both = both.sort_by(PLACE).append_column(BUCKET, pa.array(np.arange(len(both)) * 0))
        batches = both.combine_chunks().to_batches()
        begun = time.process_time()
        made = list(worker(day)(iter(batches)))
        costs.append(time.process_time() - begun)
        year.apply(pa.Table.from_batches(made), day)
    segments = pc.sum(pc.equal(year.held["part"], SEGMENT_PART)).as_py()
    print(f"{options.deltas_a_day:,} deltas a day over {options.entities:,} entities, {segments:,} segments at last")
    last = np.median(costs[-5:])
    for day in sorted({10, *(day for day in (30, 100) if day < options.days - 5)}):
        early = np.median(costs[day - 2 : day + 3])
        print(f"day {day}: {early * 1e3:.1f} ms, day {options.days}: {last * 1e3:.1f} ms: {last / early:.2f}")
