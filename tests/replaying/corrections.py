"""The ops of kind `corrections`, each a thin call of `spark_jobs.engine.corrections`."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add

import numpy as np

from spark_jobs.engine.corrections import CorrectionBuffer, Updates
from spark_jobs.engine.corrections.bucket_chain import BucketChain
from spark_jobs.engine.corrections.buffer import CHAIN_PROPORTIONALITY
from spark_jobs.engine.corrections.chains import (
    Chain,
    ChainList,
    Ledger,
    restore_chain_invariant,
    satisfies_chain_invariant,
    updates_of,
)
from spark_jobs.model import Frontier
from tests.replaying.protocol import Json, UnknownOp

START = [0]


class Player:
    """One correction buffer and, independent of it, one bucket chain of plain times."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._buffer = CorrectionBuffer()
        self._buckets: BucketChain[ChainList] | None = None
        self._inserted = 0

    def play(self, op: str, args: Mapping[str, Json]) -> Json:
        handler = getattr(self, f"op_{op}", None)
        if handler is None:
            raise UnknownOp(op)
        return handler(**args)

    def state(self) -> object:
        # chains never change, so they stand for their updates
        buckets = self._buckets
        items = buckets and [(bucket, tuple(content.chains)) for bucket, content in buckets.items()]
        return self._buffer.state(), items, self._inserted

    # -- the buffer ----------------------------------------------------------------------------------------------------

    def op_new(self, since: Json = START) -> None:
        self._buffer = CorrectionBuffer(since=Frontier.from_json(since))

    def op_insert(self, updates: Json) -> None:
        self._buffer.insert(*_columns(updates))

    def op_insert_negated(self, updates: Json) -> None:
        self._buffer.insert_negated(*_columns(updates))

    def op_advance_since(self, since: Json) -> None:
        self._buffer.advance_since(Frontier.from_json(since))

    def op_updates_before(self, upper: Json) -> Json:
        return [list(row) for row in self._buffer.updates_before(Frontier.from_json(upper)).rows()]

    def op_count_before(self, upper: Json) -> int:
        return self._buffer.count_before(Frontier.from_json(upper))

    def op_contents(self) -> Json:
        return [list(row) for row in self._buffer.contents().rows()]

    def op_consolidate_before(self, upper: Json) -> None:
        self._buffer.consolidate_before(Frontier.from_json(upper))

    def op_consolidate_at_since(self) -> None:
        self._buffer.consolidate_at_since()

    def op_drain_stepwise(self, num_ts: int) -> Json:
        read: list[Json] = []
        for time in range(num_ts):
            upper = Frontier.at(time + 1)
            updates = self._buffer.updates_before(upper)
            self._buffer.insert_negated(*updates)
            self._buffer.advance_since(upper)
            read.append([list(row) for row in updates.rows()])
        return read

    # -- structure: the bucket chain -----------------------------------------------------------------------------------

    def op_bucket_new(self, domain_bits: int, min_bits: int = 0, times: Json = ()) -> None:
        content = ChainList(CHAIN_PROPORTIONALITY, Ledger())
        buckets = BucketChain(content, domain_bits=domain_bits, min_bits=min_bits)
        self._insert_times(buckets, times)
        self._buckets = buckets

    @property
    def _made_buckets(self) -> BucketChain[ChainList]:
        assert self._buckets is not None, "a case makes the chain first"
        return self._buckets

    def op_bucket_insert(self, times: Json) -> None:
        self._insert_times(self._made_buckets, times)

    def op_bucket_restore(self, fuel: int) -> int:
        return self._made_buckets.restore(fuel)

    def op_bucket_peel(self, frontier: Json) -> Json:
        contents = self._made_buckets.peel(Frontier.from_json(frontier))
        times = np.sort(updates_of(chain for content in contents for chain in content.chains).times)
        if times.size and (np.diff(times) == 1).all():
            return {"range": [int(times[0]), int(times[-1]) + 1]}
        return times.tolist()

    def op_bucket_layout(self) -> Json:
        return [list(bucket) for bucket in self._made_buckets.layout()]

    def op_bucket_lower(self) -> int | None:
        return self._made_buckets.lower()

    def op_bucket_range_of(self, time: int) -> Json:
        bits_above = [(offset, bits) for offset, bits in self._made_buckets.layout() if offset <= time]
        if not bits_above:
            return None
        offset, bits = bits_above[-1]
        end = offset + (1 << bits)
        return [offset, None if end >> self._made_buckets.domain_bits else end]

    def op_bucket_well_formed(self) -> bool:
        return self._made_buckets.is_well_formed()

    def _insert_times(self, buckets: BucketChain[ChainList], times: Json) -> None:
        if isinstance(times, dict):
            first, end = times["range"]
            buckets.require_bucket([first] if first < end else [])
            column = np.arange(first, max(first, end), dtype=np.uint64)
        else:
            buckets.require_bucket(times)
            column = np.sort(np.array(times, np.uint64))
        # a number of its own keeps every item apart from those of the same time
        serials = np.arange(self._inserted, self._inserted + column.size)
        self._inserted += column.size
        items = Updates(column, serials, np.ones(column.size, np.int64))
        for content, start, stop in buckets.spans(column):
            chain = Chain.of(items.rows(start, stop), content.ledger.chunk_rows)
            if chain:
                content.push(chain)

    # -- structure: the chain invariant --------------------------------------------------------------------------------

    def op_chain_ok(self, sizes: Json, proportionality: int) -> bool:
        return satisfies_chain_invariant(sizes, proportionality)

    def op_chain_pushes(self, pushes: Json, proportionality: int) -> Json:
        sizes: list[int] = []
        for pushed in filter(None, pushes):
            sizes.append(pushed)
            restore_chain_invariant(sizes, proportionality, size=int, merge=add)
        return sizes


def _columns(updates: Json) -> tuple[list[str], list[int], list[int]]:
    """Data, times and diffs of a list of updates."""
    data, times, diffs = zip(*updates, strict=True) if updates else ((), (), ())
    return list(data), list(times), list(diffs)
