"""The arrangement's promised costs, measured: transitions per second, and bytes rewritten over N appends.

    python tests/benchmarks/trace_kernel.py [--days 2000] [--repeats 5] [--appends 1024] [--plot FILE]

Rates are per CPU second of this process, best of the repeats. Bytes rewritten are counted, so no other load on the
machine changes them; beside them stands the policy that keeps one batch only. Exit code 1 if a figure misses its bound.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

# run by path from anywhere: the package lies two directories above this file's
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from spark_jobs.engine.arrangement import ArrangementState, CompactionResponse, StoredBatch, UnsealedBatch, merged_batch
from spark_jobs.model import Frontier
from spark_jobs.trace import UPDATE_SCHEMA, ArrowPlane, SteppedArrangement

TRANSITIONS_PER_SECOND = 100_000
ROWS_PER_APPEND = 100
BYTES_PER_BYTE_AND_DOUBLING = 1.1
"""Bound on bytes rewritten per byte appended and per doubling of N: each update once a level, and what a batch adds."""


class Rewriting(NamedTuple):
    """What N appends of one size cost when everything that may merge is merged after each."""

    appends: int
    appended_bytes: int
    rewritten_bytes: int
    most_batches: int
    worst_append_bytes: int

    @property
    def per_byte(self) -> float:
        """Bytes rewritten per byte appended."""
        return self.rewritten_bytes / self.appended_bytes

    @property
    def is_met(self) -> bool:
        """Whether rewriting stays within O(N log N), and the live batches within O(log N)."""
        doublings = math.log2(self.appends)
        return self.per_byte <= BYTES_PER_BYTE_AND_DOUBLING * doublings and self.most_batches <= doublings + 2


def days_of_transitions(n_days: int) -> int:
    """Land, seal, drain, evict and compact for `n_days`, on metadata alone; returns the number of transitions."""
    state, n_transitions = ArrangementState(), 0
    for day in range(n_days):
        state = state.append(UnsealedBatch(f"u{day}", (day, day + 1), day, day, 1, 1)).advance_seal(day + 1)
        request = state.drain_request()
        assert request is not None
        drained = state.install_drain(request, StoredBatch(f"t{day}", 1, 1, day, day))
        assert drained is not None
        state, _ = drained.evict()
        state = state.allow_compaction(Frontier.at(day + 1), now=day)
        n_transitions += 6
        while (merge := state.compaction_request()) is not None:
            size = merge.earlier.size + merge.later.size
            stored = StoredBatch(f"{merge.earlier.handle}+", size, size, day, day)
            installed = state.install_merge(CompactionResponse(merge, merged_batch(merge, stored)))
            assert installed is not None
            state = installed
            n_transitions += 2
    return n_transitions


def transition_rate(n_days: int) -> float:
    """Transitions per CPU second."""
    started = time.process_time()
    n_transitions = days_of_transitions(n_days)
    return n_transitions / (time.process_time() - started)


def new_rows(append: int) -> pa.Table:
    """Rows that no other append has."""
    keys = [f"{append:06}-{row:04}" for row in range(ROWS_PER_APPEND)]
    return _updates(keys, append, [1] * ROWS_PER_APPEND)


def replaced_rows(append: int) -> pa.Table:
    """The same keys in every append, each row the counterpart of the one before: what is old cancels."""
    keys = [f"{version:06}-{row:04}" for version in (append, append - 1) for row in range(ROWS_PER_APPEND // 2)]
    return _updates(keys, append, [1] * (ROWS_PER_APPEND // 2) + [-1 if append else 1] * (ROWS_PER_APPEND // 2))


PATTERNS: dict[str, Callable[[int], pa.Table]] = {"new rows": new_rows, "replaced rows": replaced_rows}


def rewriting(pattern: Callable[[int], pa.Table], n_appends: int) -> Rewriting:
    """Append, seal, drain, evict and compact `n_appends` times, since following the seal."""
    arrangement = SteppedArrangement(ArrowPlane())
    appended = rewritten = most_batches = worst = 0
    for append in range(n_appends):
        batch = arrangement.write(pattern(append))
        assert batch is not None
        appended += batch.size
        arrangement.seal(append + 1)
        arrangement.drain()
        arrangement.evict()
        arrangement.allow_compaction(Frontier.at(append + 1))
        merged_now = 0
        while (request := arrangement.compaction_request()) is not None:
            response = arrangement.merge(request)
            arrangement.install(response)
            merged_now += response.merged.size
        rewritten += merged_now
        worst = max(worst, merged_now)
        most_batches = max(most_batches, len(arrangement.state.trace))
    return Rewriting(n_appends, appended, rewritten, most_batches, worst)


def single_batch_per_byte(n_appends: int) -> float:
    """Bytes rewritten per byte appended if every append of new rows is merged into the one batch there is."""
    return sum(range(2, n_appends + 1)) / n_appends


def measured(n_appends: int) -> Iterator[tuple[str, Rewriting]]:
    """Both patterns at doubling numbers of appends, up to `n_appends`."""
    for name, pattern in PATTERNS.items():
        for doublings in range(4, n_appends.bit_length()):
            yield name, rewriting(pattern, 1 << doublings)


def plot(figures: list[tuple[str, Rewriting]], file: Path) -> None:
    """Draw bytes rewritten per byte appended over N, beside log2 N and one single batch."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name in PATTERNS:
        points = [(figure.appends, figure.per_byte) for pattern, figure in figures if pattern == name]
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    appends = sorted({figure.appends for _, figure in figures})
    axes.plot(appends, [math.log2(n) for n in appends], "--", label="log2 N")
    axes.plot(appends, [single_batch_per_byte(n) for n in appends], ":", label="one batch, merged at every append")
    axes.set(xscale="log", yscale="log", xlabel="appends N", ylabel="bytes rewritten per byte appended")
    axes.legend()
    plt.savefig(file, dpi=120)


def main() -> int:
    """Print the tables; returns the exit code."""
    options = _options()
    rate = max(transition_rate(options.days) for _ in range(options.repeats))
    met = [rate >= TRANSITIONS_PER_SECOND]
    print(f"state machine: {rate:,.0f} transitions/s over {options.days:,} days (bound: {TRANSITIONS_PER_SECOND:,})")
    print("\n       pattern      N  rewritten/appended  log2 N  one batch  batches   worst")
    figures = []
    for name, figure in measured(options.appends):
        figures.append((name, figure))
        met.append(figure.is_met)
        worst = figure.worst_append_bytes * figure.appends / figure.appended_bytes
        print(
            f"{name:>14} {figure.appends:>6,} {figure.per_byte:>19.2f} {math.log2(figure.appends):>7.0f} "
            f"{single_batch_per_byte(figure.appends):>10.1f} {figure.most_batches:>8} {worst:>6,.0f}x"
        )
    print("\nworst: most bytes that one append rewrote, in appends")
    if options.plot is not None:
        plot(figures, options.plot)
    return 0 if all(met) else 1


def _updates(keys: list[str], time_: int, diffs: list[int]) -> pa.Table:
    return pa.table([keys, ["v"] * len(keys), [time_] * len(keys), diffs], schema=UPDATE_SCHEMA)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the arrangement's promised costs.")
    parser.add_argument("--days", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--appends", type=int, default=1_024)
    parser.add_argument("--plot", type=Path, help="write the figure of bytes rewritten to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
