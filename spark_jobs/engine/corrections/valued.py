"""The correction buffer over data of any ordered type with exact equality: strings, bytes, integers, dates, tuples.

Each distinct value gets an integer code when it first comes in; the coded buffer does the work. Codes are given in the
order of arrival, so a read sorts its result once more, by value. Values whose last update has cancelled are forgotten
once they are in the majority. So memory depends on the updates in the buffer, not on all that ever passed through.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_jobs.engine.corrections.buffer import CodedCorrections
from spark_jobs.engine.corrections.columns import Codes, Diffs, Times, Updates
from spark_jobs.engine.corrections.intake import as_integers, as_times, require_equal_lengths
from spark_jobs.engine.corrections.kinds import Kind, kind_of, merge_kinds, not_of_one_kind
from spark_jobs.engine.updates.refusals import MalformedUpdates
from spark_jobs.errors import TidemarkError
from spark_jobs.model import Frontier

FORGOTTEN_AT_ONCE = 65_536
"""Unused values are forgotten when the values exceed twice the stored updates by this number.

Not earlier, because renumbering takes a pass over all updates."""


class Corrections(NamedTuple):
    """Updates with their values, ordered by (time, value): columns of one length."""

    data: list[Any]
    times: Times
    diffs: Diffs

    def rows(self) -> list[tuple[Any, int, int]]:
        """`(value, time, diff)` per update, with times and diffs as Python integers."""
        return list(zip(self.data, self.times.tolist(), self.diffs.tolist(), strict=True))

    def to_arrow(self, data_type: pa.DataType | None = None) -> pa.Table:
        """A table of `data` (of `data_type`, or of the type that Arrow infers), `time` (uint64) and `diff` (int64)."""
        return pa.table({"data": pa.array(self.data, data_type), "time": self.times, "diff": self.diffs})


class CorrectionBuffer:
    """A stash of updates `(data, time, diff)` that leave only by being cancelled.

    All values of a buffer are of one kind (see `kinds`), so that every read can sort them. The arguments are those of
    `CodedCorrections`.

    >>> buffer = CorrectionBuffer()
    >>> buffer.insert(["count=3", "count=4", "count=3"], [10, 20, 20], [1, 1, -1])
    >>> buffer.updates_before(Frontier.at(11)).rows()
    [('count=3', 10, 1)]
    """

    def __init__(self, **settings: Any) -> None:
        self._coded = CodedCorrections(**settings)
        self._vocabulary = _Vocabulary()

    @property
    def since(self) -> Frontier:
        """The frontier to which every time is forwarded."""
        return self._coded.since

    @property
    def n_updates(self) -> int:
        """The number of stored updates, O(1)."""
        return self._coded.n_updates

    @property
    def held_bytes(self) -> int:
        """The bytes of the stored updates without their values, O(1)."""
        return self._coded.held_bytes

    @property
    def distinct_values(self) -> int:
        """The number of values that have a code, O(1)."""
        return len(self._vocabulary.values)

    @property
    def copied(self) -> int:
        """The number of updates written into new chains so far, O(1): the structural work."""
        return self._coded.copied

    def insert(self, data: Any, times: Any, diffs: Any) -> None:
        """Add updates given as columns (lists, numpy or Arrow), with times forwarded to since.

        If since is `[]`, they are discarded. Raises MalformedUpdates, TimeOutOfRange or DiffOverflow; no update is
        inserted then.
        """
        self._insert(data, times, diffs, self._coded.insert)

    def insert_negated(self, data: Any, times: Any, diffs: Any) -> None:
        """Add updates with their diffs negated: the feedback of the updates that were written."""
        self._insert(data, times, diffs, self._coded.insert_negated)

    def updates_before(self, upper: Frontier) -> Corrections:
        """The updates at times not at or beyond `upper`, ordered by (time, value); none unless since < `upper`."""
        return self._decode(self._coded.updates_before(upper))

    def count_before(self, upper: Frontier) -> int:
        """The number of updates that `updates_before` returns."""
        return self._coded.count_before(upper)

    def contents(self) -> Corrections:
        """All updates in the buffer, forwarded and consolidated; changes nothing in the buffer."""
        return self._decode(self._coded.contents())

    def consolidate_before(self, upper: Frontier) -> None:
        """Bring all updates before `upper` together in one consolidated chain; changes no answer."""
        self._coded.consolidate_before(upper)

    def consolidate_at_since(self) -> None:
        """Consolidate the updates at since; does nothing if since is `[]` or the greatest time."""
        self._coded.consolidate_at_since()

    def advance_since(self, since: Frontier) -> None:
        """Move since; `[]` empties the buffer for good. Raises SinceRegression if it is before the present one."""
        self._coded.advance_since(since)
        if since.time is None:
            self._vocabulary = _Vocabulary()

    def state(self) -> tuple[object, ...]:
        """The complete physical state, as a value: equal to a later one if nothing moved in between."""
        return self._coded.state()

    def _insert(self, data: Any, times: Any, diffs: Any, insert: Callable[[Updates], None]) -> None:
        checked_times, checked_diffs = as_times(times), as_integers(diffs, "diffs")
        values, positions = _distinct_first(data)
        rows = len(values) if positions is None else len(positions)
        require_equal_lengths(rows, Updates(checked_times, checked_diffs, checked_diffs))
        kind = merge_kinds(self._vocabulary.kind, kind_of(values))
        if self._coded.since.time is None:
            return
        n_known = self.distinct_values
        try:
            insert(Updates(checked_times, self._vocabulary.encode(values, positions), checked_diffs))
        except TidemarkError:
            self._vocabulary.forget_from(n_known)
            raise
        self._vocabulary.kind = kind
        self._forget_unused()

    def _decode(self, updates: Updates) -> Corrections:
        rank = self._vocabulary.ranks(updates.data)
        order = np.lexsort((rank, updates.times))
        values = self._vocabulary.values
        return Corrections(
            [values[code] for code in updates.data[order].tolist()], updates.times[order], updates.diffs[order]
        )

    def _forget_unused(self) -> None:
        if self.distinct_values > 2 * self.n_updates + FORGOTTEN_AT_ONCE:
            self._vocabulary = self._vocabulary.only(self._coded.recode())


def _distinct_first(data: Any) -> tuple[Sequence[Hashable], Codes | None]:
    """The values to look up, and the index of each row's value among them; None for one value per row."""
    if isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks()
    if isinstance(data, pa.Array):
        return _of_arrow(data)
    if isinstance(data, np.ndarray) and data.ndim == 1:
        return data.tolist(), None
    if isinstance(data, np.ndarray | str | bytes) or not isinstance(data, Iterable):
        raise MalformedUpdates(
            expected="data as one column", found=repr(data)[:80], next_step="give a list, or a column of numpy or Arrow"
        )
    return data if isinstance(data, list | tuple) else list(data), None


def _of_arrow(data: pa.Array) -> tuple[Sequence[Hashable], Codes | None]:
    encoded = pa.types.is_dictionary(data.type)
    values = data.type.value_type if encoded else data.type
    if pa.types.is_floating(values) or pa.types.is_nested(values):
        raise not_of_one_kind(f"data of the type {values}")
    if encoded and data.dictionary.null_count:
        # a dictionary may contain the null itself; then the null count of its indices is 0
        data, encoded = data.cast(values), False
    if data.null_count:
        raise MalformedUpdates(
            expected="data without nulls", found=f"{data.null_count} nulls", next_step="leave these rows out"
        )
    try:
        coded = data if encoded else data.dictionary_encode()
        return coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise not_of_one_kind(f"data of the type {values}: {error}") from None


class _Codes(dict[Hashable, int]):
    """Value → code; an unknown value gets the next code as it is looked up, and is appended to `in_order`."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__(zip(values, range(len(values)), strict=True))
        self.in_order = values

    def __missing__(self, value: Hashable) -> int:
        code = self[value] = len(self.in_order)
        self.in_order.append(value)
        return code


class _Vocabulary:
    """Codes of values, in the order in which the values first came; `values[code]` is the value, `kind` its kind."""

    def __init__(self, values: list[Any] | None = None, kind: Kind = None) -> None:
        self.values: list[Any] = values or []
        self.kind = kind
        self._codes = _Codes(self.values)

    def encode(self, values: Iterable[Hashable], positions: Codes | None) -> Codes:
        """The codes of `values`, or of `values[positions]`."""
        try:
            codes = np.fromiter(map(self._codes.__getitem__, values), np.int64)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise not_of_one_kind(str(error)) from None
        return codes if positions is None else codes[positions]

    def forget_from(self, count: int) -> None:
        """Forget all values but the first `count`."""
        for value in self.values[count:]:
            del self._codes[value]
        del self.values[count:]

    def ranks(self, codes: Codes) -> Codes:
        """Per code, the rank of its value among the values of all `codes`."""
        distinct, positions = np.unique(codes, return_inverse=True)
        values = [self.values[code] for code in distinct.tolist()]
        ranks = np.empty(len(values), np.int64)
        ranks[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
        return ranks[positions]

    def only(self, used: Codes) -> _Vocabulary:
        """A vocabulary of only the values with the codes `used`, which become 0 .. n - 1 in this order."""
        return _Vocabulary([self.values[code] for code in used.tolist()], self.kind)
