"""The slow, obvious twins of the correction buffer and of the bucket chain: the same results without any structure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from spark_jobs.engine.corrections.errors import MinBitsTooLarge, NoBucket
from spark_jobs.engine.updates.refusals import SinceRegression
from spark_jobs.model import Frontier

Triple = tuple[Any, int, int]
"""`(data, time, diff)`."""


class NaiveCorrections:
    """Every update ever inserted, in one list; each read forwards, sums and sorts all of it."""

    def __init__(self, *, since: Frontier = Frontier(0)) -> None:  # noqa: B008 - frozen
        self.since = since
        self._updates: list[Triple] = []

    def insert(self, updates: Iterable[Triple]) -> None:
        """Add updates; since `[]` discards them."""
        if self.since.time is not None:
            self._updates += [(data, self.since.forward(time), diff) for data, time, diff in updates]

    def insert_negated(self, updates: Iterable[Triple]) -> None:
        """Add updates with negated diffs."""
        self.insert((data, time, -diff) for data, time, diff in updates)

    def updates_before(self, upper: Frontier) -> list[Triple]:
        """Consolidated updates not at or beyond `upper`, by (time, data); none unless since < `upper`."""
        if not self.since < upper:
            return []
        return [update for update in self.contents() if not upper.admits(update[1])]

    def contents(self) -> list[Triple]:
        """All consolidated updates, by (time, data)."""
        sums: Counter[tuple[int, Any]] = Counter()
        for data, time, diff in self._updates:
            sums[self.since.forward(time), data] += diff
        return [(data, time, sums[time, data]) for time, data in sorted(sums) if sums[time, data]]

    def advance_since(self, since: Frontier) -> None:
        """Move since; raises SinceRegression if it is before the present one."""
        if not self.since <= since:
            raise SinceRegression(self.since, since)
        self.since = since
        if since.time is None:
            self._updates = []


class NaiveBucketChain:
    """A bucket chain over plain times: a list of `[offset, bits, times]`, searched from the start every time."""

    def __init__(self, times: Iterable[int], *, domain_bits: int, min_bits: int = 0) -> None:
        if min_bits > domain_bits:
            raise MinBitsTooLarge(min_bits, domain_bits)
        self.min_bits = min_bits
        self._buckets: list[tuple[int, int, list[int]]] = [(0, domain_bits, list(times))]

    def layout(self) -> list[tuple[int, int]]:
        """`(offset, bits)` of every bucket."""
        return [(offset, bits) for offset, bits, _ in self._buckets]

    def insert(self, times: list[int]) -> None:
        """Add all times. If one is below every bucket, none is added: raises NoBucket."""
        lower = self._buckets[0][0] if self._buckets else None
        for time in times:
            if lower is None or time < lower:
                raise NoBucket(time, lower)
        for time in times:
            next(bucket for offset, _, bucket in reversed(self._buckets) if offset <= time).append(time)

    def peel(self, frontier: Frontier) -> list[int]:
        """The times of all buckets that start below `frontier`, after halving the one that straddles it."""
        peeled: list[int] = []
        while self._buckets and not frontier.admits(self._buckets[0][0]):
            offset, bits, times = self._buckets[0]
            if frontier.time is not None and frontier.time < offset + 2**bits and bits > self.min_bits:
                self._halve(0)
            else:
                peeled += times
                del self._buckets[0]
        return sorted(peeled)

    def restore(self, fuel: int) -> int:
        """Halve the first badly placed bucket while there is one and fuel is positive; returns the fuel left."""
        while fuel > 0:
            badly_placed = self._first_badly_placed()
            if badly_placed is None:
                break
            fuel -= len(self._buckets[badly_placed][2])
            self._halve(badly_placed)
        return fuel

    def is_well_formed(self) -> bool:
        """True if the bits of each bucket are at most those of the previous bucket plus 2."""
        return self._first_badly_placed() is None

    def _first_badly_placed(self) -> int | None:
        previous = self.min_bits - 2
        for index, (_, bits, _) in enumerate(self._buckets):
            if bits > previous + 2:
                return index
            previous = bits
        return None

    def _halve(self, index: int) -> None:
        offset, bits, times = self._buckets[index]
        middle = offset + 2 ** (bits - 1)
        self._buckets[index : index + 1] = [
            (offset, bits - 1, [time for time in times if time < middle]),
            (middle, bits - 1, [time for time in times if time >= middle]),
        ]
