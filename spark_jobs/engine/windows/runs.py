"""Rows in any order to rows sorted by key and time, within a budget of memory: sorted runs that are merged.

Rows that fit into the budget are sorted in memory. If they do not fit, each fill of the budget is sorted and stored as
a run, and the runs are merged from their beginnings. Many runs are first merged in groups, so that merging keeps to the
budget, too. The result is the same for every budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.windows.memory import MemoryBudget, RunStore
from spark_jobs.engine.windows.rows import able_rows, as_ticks, group_rows, sort_rows, sorted_order

Ints = npt.NDArray[np.int64]
_PARTS = 4
"""Chunks of merged rows, whose number varies, are cut into parts of at most 1/_PARTS of the rows asked for."""
_MOST_BATCH_ROWS = 4096
"""The most rows of a run that are read at a time."""
_MANY_RUNS = 32
"""The most runs that are merged at once: a batch of each of them fits into the budget. More need several passes."""


class RowSorter:
    """Takes rows table by table, and returns the rows that can count in the order (key, time)."""

    def __init__(
        self,
        *,
        key: list[str],
        time: str,
        budget: MemoryBudget,
        store: RunStore,
        required: Collection[str] = (),
        drop_negative: bool = False,
        held_as: str = "rows",
    ) -> None:
        """Make a sorter without rows. `required`, `drop_negative`: the rows that can't count, see `rows.sort_rows`;
        `held_as`: the name of the use in `MemoryUse.holds`."""
        self._key, self._time, self._required, self._drop_negative = key, time, required, drop_negative
        self._budget, self._store, self._held_as = budget, store, held_as
        self._taken_bytes = self._taken_rows = 0
        self._waiting: list[pa.Table] = []
        self._held_bytes = self._held_rows = 0
        self._runs: list[list[Iterator[pa.Table]]] = []
        """The runs by level: by the number of times that their rows have been merged."""
        self._batch_rows = 0
        self._beside: RowSorter | None = None

    def share_with(self, other: RowSorter) -> None:
        """Keep to one budget, which both sorters have. The sorter with more bytes in memory is flushed first."""
        self._beside, other._beside = other, self

    def add(self, rows: pa.Table) -> None:
        """Take rows; the rows that are in memory may be flushed before."""
        rows = able_rows(rows, self._key, self._time, self._required, self._drop_negative)[0]
        if not rows.num_rows:
            return
        if not self._budget.allows(rows.nbytes, rows.num_rows, self._budget.emergency) and rows.num_rows > 1:
            middle = rows.num_rows // 2
            self.add(rows.slice(0, middle))
            self.add(rows.slice(middle))
            return
        self._make_room(rows)
        self._waiting.append(rows)
        self._held_bytes += rows.nbytes
        self._held_rows += rows.num_rows
        self._taken_bytes += rows.nbytes
        self._taken_rows += rows.num_rows
        self._budget.use.rows += rows.num_rows
        self._holds(self._budget.sorting_bytes(self._held_bytes, self._held_rows))

    def _make_room(self, rows: pa.Table) -> None:
        sorters = [self] if self._beside is None else [self, self._beside]
        while any(sorter._held_rows for sorter in sorters):
            n_bytes = rows.nbytes + sum(sorter._held_bytes for sorter in sorters)
            n_rows = rows.num_rows + sum(sorter._held_rows for sorter in sorters)
            if self._budget.allows(n_bytes, n_rows, self._budget.high_water):
                return
            max(sorters, key=lambda sorter: sorter._held_bytes)._flush()

    def row_bytes(self) -> int:
        """The average number of bytes of a row, at least 1."""
        return self._taken_bytes // max(self._taken_rows, 1) + 1

    def _holds(self, n_bytes: int) -> None:
        self._budget.use.holds(**{self._held_as: n_bytes})

    def chunks(self, most_rows: int) -> Iterator[pa.Table]:
        """All rows in the order (key, time), in chunks of at most `most_rows`; afterwards no rows may be added."""
        if not self._runs:
            yield from self._sorted_chunks(most_rows)
            return
        self._flush()
        while sum(map(len, self._runs)) > _MANY_RUNS:
            self._join(next(level for level, runs in enumerate(self._runs) if runs))
        part = max(most_rows // _PARTS, 1)
        for chunk in self._merge([run for runs in self._runs for run in runs]):
            for begin in range(0, chunk.num_rows, part):
                yield chunk.slice(begin, part)

    def _flush(self) -> None:
        """Store the rows that are in memory as a sorted run."""
        if not self._waiting:
            return
        use = self._budget.use
        use.flushed_runs += 1
        use.flushed_bytes += self._held_bytes
        batch = self._rows_of_a_run(self._held_bytes // self._held_rows + 1, _MANY_RUNS)
        self._batch_rows = max(self._batch_rows, min(batch, _MOST_BATCH_ROWS))
        self._put_away(self._store.save(self._sorted_chunks(self._batch_rows)), 0)
        self._holds(0)

    def _rows_of_a_run(self, row_bytes: int, runs: int) -> int:
        """The number of rows of each run in memory while `runs` runs are merged; two sorters that share a budget may
        merge at the same time."""
        return self._budget.rows_of_a_run(row_bytes, runs if self._beside is None else 2 * runs)

    def _put_away(self, run: Iterator[pa.Table], level: int) -> None:
        """Add a run to a level. Once a level has _MANY_RUNS runs, they are merged into one run of the next level."""
        if level == len(self._runs):
            self._runs.append([])
        self._runs[level].append(run)
        if len(self._runs[level]) == _MANY_RUNS:
            self._join(level)

    def _join(self, level: int) -> None:
        """Merge the runs of a level into one run of the next level."""
        runs, self._runs[level] = self._runs[level], []
        batch = self._batch_rows
        whole = (chunk.slice(n, batch) for chunk in self._merge(runs) for n in range(0, chunk.num_rows, batch))
        self._put_away(self._store.save(whole), level + 1)

    def _merge(self, runs: list[Iterator[pa.Table]]) -> Iterator[pa.Table]:
        row_bytes = self.row_bytes()
        # a run is read batch by batch, so up to a batch more than asked for is in memory
        rows = max(self._rows_of_a_run(row_bytes, len(runs)) - self._batch_rows, 1)
        self._holds(self._budget.sorting_bytes(row_bytes, 1) * (rows + self._batch_rows) * len(runs))
        return merge_runs(runs, key=self._key, time=self._time, rows_of_a_run=rows)

    def _sorted_chunks(self, most_rows: int) -> Iterator[pa.Table]:
        """The rows that are in memory, in order; the sorter gives them up."""
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting).combine_chunks()
        self._waiting.clear()
        self._held_bytes = self._held_rows = 0
        rows = sort_rows(table, key=self._key, time=self._time)
        for begin in range(0, table.num_rows, most_rows):
            yield rows.table.take(pa.array(rows.order[begin : begin + most_rows]))


class _Run:
    """A run of sorted rows: its part in memory (`head`), and the rest."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self.head: pa.Table | None = None
        self.exhausted = False
        self._tables = tables

    def fill(self, n_rows: int) -> int:
        """Read until at least `n_rows` rows are in memory, or all that are left. Returns their number."""
        parts = [] if self.head is None else [self.head]
        n_waiting = sum(part.num_rows for part in parts)
        while n_waiting < n_rows and not self.exhausted:
            part = next(self._tables, None)
            if part is None:
                self.exhausted = True
            else:
                parts.append(part)
                n_waiting += part.num_rows
        self.head = pa.concat_tables(parts).combine_chunks() if len(parts) > 1 else (parts[0] if parts else None)
        return n_waiting


def merge_runs(runs: list[Iterator[pa.Table]], *, key: list[str], time: str, rows_of_a_run: int) -> Iterator[pa.Table]:
    """Merge runs that are each sorted by (key, time), with about `rows_of_a_run` rows of each in memory."""
    live = [_Run(run) for run in runs]
    while True:
        live = [run for run in live if run.fill(rows_of_a_run)]
        heads = [run.head for run in live if run.head is not None]
        if not heads:
            return
        at = _first_to_end(live, heads, key, time)
        # a run that begins beyond the bound contributes no row yet
        taking = list(range(len(live))) if at is None else _beginning_within(heads, at, key, time)
        table = pa.concat_tables([heads[n] for n in taking]).combine_chunks()
        sizes = np.array([heads[n].num_rows for n in taking])
        ends = np.cumsum(sizes)
        order = _prefix(table, key, time, None if at is None else int(ends[taking.index(at)]) - 1)
        taken = np.bincount(np.searchsorted(ends, order, side="right"), minlength=len(taking))
        for n, gone in zip(taking, taken, strict=True):
            live[n].head = heads[n].slice(int(gone)) if gone < heads[n].num_rows else None
        yield table.take(pa.array(order))


def _prefix(table: pa.Table, key: list[str], time: str, bound: int | None) -> Ints:
    """The rows up to row `bound` in the order (key, time), in that order; all rows for None."""
    codes, ticks = group_rows(table, key)[0], as_ticks(table.column(time))
    order = sorted_order(codes, ticks)
    if order is None:
        order = np.arange(ticks.size, dtype=np.int64)
    if bound is None:
        return order
    code, tick = codes[bound], ticks[bound]
    return order[((codes < code) | ((codes == code) & (ticks <= tick)))[order]]


def _places(rows: list[pa.Table], key: list[str], time: str) -> list[tuple[int, int]]:
    """The places in the order (key, time) of rows, each given as a table of one row."""
    table = pa.concat_tables([row.select([*key, time]) for row in rows]).combine_chunks()
    codes, ticks = group_rows(table, key)[0], as_ticks(table.column(time))
    return list(zip(codes.tolist(), ticks.tolist(), strict=True))


def _first_to_end(live: list[_Run], heads: list[pa.Table], key: list[str], time: str) -> int | None:
    """The run whose part in memory ends first, of the runs with more rows to read. All rows up to that end are in
    memory. None if all runs were read to their ends."""
    going_on = [n for n, run in enumerate(live) if not run.exhausted]
    if not going_on:
        return None
    places = _places([heads[n].slice(heads[n].num_rows - 1) for n in going_on], key, time)
    return going_on[min(range(len(places)), key=places.__getitem__)]


def _beginning_within(heads: list[pa.Table], at: int, key: list[str], time: str) -> list[int]:
    """The runs whose first row in memory is not beyond the last row in memory of run `at`."""
    *places, bound = _places(
        [*(head.slice(0, 1) for head in heads), heads[at].slice(heads[at].num_rows - 1)], key, time
    )
    return [n for n, place in enumerate(places) if place <= bound]
