"""The slow, obvious twin of `consolidate`: Python lists of `(*data, time, diff)`, a dictionary, a sort."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Update = tuple[Any, ...]
"""`(*data, time, diff)`."""


def consolidate(updates: Iterable[Update]) -> list[Update]:
    """Diffs summed per (data, time), zeros dropped, sorted by (data, time)."""
    sums: defaultdict[Update, int] = defaultdict(int)
    for update in updates:
        sums[update[:-1]] += update[-1]
    return sorted((*data_and_time, diff) for data_and_time, diff in sums.items() if diff != 0)


def forward(updates: Iterable[Update], since: int | None) -> list[Update]:
    """Updates with each time replaced by the greater of itself and `since`; None leaves times unchanged."""
    if since is None:
        return list(updates)
    return [(*update[:-2], max(update[-2], since), update[-1]) for update in updates]


def accumulate(updates: Iterable[Update]) -> list[Update]:
    """The bag of `(*data, diff)`: diffs summed per data, zeros dropped, sorted by data."""
    untimed = [(*update[:-2], 0, update[-1]) for update in updates]
    return [(*update[:-2], update[-1]) for update in consolidate(untimed)]
