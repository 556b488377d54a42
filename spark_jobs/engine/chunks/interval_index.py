"""An interval tree over inclusive integer intervals `[start, end]`, each with an integer key.

Shape: a B+ tree ordered by (start, key). An inner node has, per child, its least (start, key) and its greatest end:

    inner   firsts [(2, k1)   (9, k7)   (30, k4)]
            tops   [ 95        22        41     ]      <- the long interval [2, 95] is seen from here
              |         |         |
            leaf      leaf      leaf     entries (start, key) ascending, ends beside them

`overlapping_keys(lo, hi)` descends only into children whose first start is <= hi and whose top is >= lo. Each such
child, except the one that straddles hi, has an answer. So n intervals with k answers cost O(FANOUT * (log n + k)), even
if one long interval overlaps all others. (The reference keeps a list of starts with the longest length ever seen, and
scans all n intervals then.) `add` and `remove` cost O(FANOUT * log n).

Not guaranteed: nodes that lose entries are not merged with their neighbours, and only empty ones are removed. So the
height depends on the greatest number of intervals ever stored, not on the present one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

FANOUT = 64
"""The greatest number of entries per node. Of the values from 16 to 256, queries are cheapest with 32, insertions with
256 or more. 10^6 intervals make four levels."""

_AFTER_ALL_KEYS = float("inf")


class _Leaf:
    __slots__ = ("ends", "entries")

    def __init__(self, entries: list[tuple[int, int]], ends: list[int]) -> None:
        self.entries, self.ends = entries, ends

    @property
    def first(self) -> tuple[int, int]:
        return self.entries[0]

    @property
    def top(self) -> int:
        return max(self.ends)

    def add(self, start: int, end: int, key: int) -> _Leaf | None:
        position = bisect_left(self.entries, (start, key))
        self.entries.insert(position, (start, key))
        self.ends.insert(position, end)
        if len(self.entries) <= FANOUT:
            return None
        half = FANOUT // 2
        right = _Leaf(self.entries[half:], self.ends[half:])
        del self.entries[half:], self.ends[half:]
        return right

    def remove(self, start: int, key: int) -> bool:
        position = bisect_left(self.entries, (start, key))
        if position == len(self.entries) or self.entries[position] != (start, key):
            raise KeyError((start, key))
        del self.entries[position], self.ends[position]
        return not self.entries

    def collect(self, lo: int, hi: int, keys: list[int]) -> None:
        stop = bisect_right(self.entries, (hi, _AFTER_ALL_KEYS))
        keys.extend([key for (_, key), end in zip(self.entries[:stop], self.ends, strict=False) if end >= lo])


class _Inner:
    __slots__ = ("children", "firsts", "tops")

    def __init__(self, children: list[_Leaf | _Inner]) -> None:
        self.children = children
        self.firsts = [child.first for child in children]
        self.tops = [child.top for child in children]

    @property
    def first(self) -> tuple[int, int]:
        return self.firsts[0]

    @property
    def top(self) -> int:
        return max(self.tops)

    def add(self, start: int, end: int, key: int) -> _Inner | None:
        position = max(bisect_right(self.firsts, (start, key)) - 1, 0)
        child = self.children[position]
        right = child.add(start, end, key)
        self.firsts[position] = child.first
        if right is None:
            self.tops[position] = max(self.tops[position], end)
            return None
        self.tops[position] = child.top
        self.children.insert(position + 1, right)
        self.firsts.insert(position + 1, right.first)
        self.tops.insert(position + 1, right.top)
        if len(self.children) <= FANOUT:
            return None
        half = FANOUT // 2
        sibling = _Inner(self.children[half:])
        del self.children[half:], self.firsts[half:], self.tops[half:]
        return sibling

    def remove(self, start: int, key: int) -> bool:
        position = max(bisect_right(self.firsts, (start, key)) - 1, 0)
        child = self.children[position]
        if child.remove(start, key):
            del self.children[position], self.firsts[position], self.tops[position]
        else:
            self.firsts[position], self.tops[position] = child.first, child.top
        return not self.children

    def collect(self, lo: int, hi: int, keys: list[int]) -> None:
        stop = bisect_right(self.firsts, (hi, _AFTER_ALL_KEYS))
        for position, top in enumerate(self.tops[:stop]):
            if top >= lo:
                self.children[position].collect(lo, hi, keys)


class IntervalIndex:
    """A multiset of intervals `[start, end]`, both inclusive, under unique keys; see the module for shape and cost."""

    __slots__ = ("_root", "_size")

    def __init__(self) -> None:
        self._root: _Leaf | _Inner = _Leaf([], [])
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, start: int, end: int, key: int) -> None:
        """Add `[start, end]` under a key that is not in the index."""
        right = self._root.add(start, end, key)
        if right is not None:
            self._root = _Inner([self._root, right])
        self._size += 1

    def remove(self, start: int, key: int) -> None:
        """Remove the interval that was added with this start and key; raises KeyError if there is none."""
        if self._root.remove(start, key):
            self._root = _Leaf([], [])
        while isinstance(self._root, _Inner) and len(self._root.children) == 1:
            self._root = self._root.children[0]
        self._size -= 1

    def overlapping_keys(self, lo: int, hi: int) -> list[int]:
        """Keys of the intervals with `start <= hi` and `end >= lo`, by (start, key)."""
        keys: list[int] = []
        if lo <= hi:
            self._root.collect(lo, hi, keys)
        return keys

    def starting_at(self, start: int) -> list[int]:
        """Keys of the intervals with exactly this start, ascending."""
        keys = []
        for entry_start, key in self._entries_from((start, -1)):
            if entry_start != start:
                break
            keys.append(key)
        return keys

    def start_before(self, time: int) -> int | None:
        """The greatest start strictly before `time`, or None."""
        node = self._root
        while isinstance(node, _Inner):
            node = node.children[max(bisect_left(node.firsts, (time, -1)) - 1, 0)]
        position = bisect_left(node.entries, (time, -1))
        return node.entries[position - 1][0] if position else None

    def start_after(self, time: int) -> int | None:
        """The least start strictly after `time`, or None."""
        return next((start for start, _ in self._entries_from((time, _AFTER_ALL_KEYS))), None)

    def all_keys(self) -> list[int]:
        """All keys, by (start, key)."""
        return [key for _, key in _entries_of(self._root)]

    def span(self) -> tuple[int, int] | None:
        """(least start, greatest end), or None when empty."""
        return (self._root.first[0], self._root.top) if self._size else None

    def _entries_from(self, bound: tuple[int, float]) -> Iterator[tuple[int, int]]:
        """Entries greater than or equal to `bound`, ascending; keys are never negative."""
        path: list[tuple[_Inner, int]] = []
        node = self._root
        while isinstance(node, _Inner):
            position = max(bisect_left(node.firsts, bound) - 1, 0)
            path.append((node, position))
            node = node.children[position]
        yield from node.entries[bisect_left(node.entries, bound) :]
        while path:
            inner, position = path.pop()
            for child in inner.children[position + 1 :]:
                yield from _entries_of(child)


def _entries_of(node: _Leaf | _Inner) -> Iterator[tuple[int, int]]:
    if isinstance(node, _Leaf):
        yield from node.entries
    else:
        for child in node.children:
            yield from _entries_of(child)
