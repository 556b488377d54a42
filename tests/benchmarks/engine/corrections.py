"""The correction buffer's promised costs, measured: insert rate, reads beside a large future, catching up.

    python tests/benchmarks/engine/corrections.py [--future 10000000] [--repeats 5]

Prints one line per figure with its bound, then the same work done by the twin (everything in one list, every read sums
all of it) in the same run. Times are CPU seconds of this process, best of the repeats; work is updates copied into new
chains, which no other load on the machine can change. Exit code 1 if a figure misses its bound.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

# run by path, the directory of this file comes first; the package lies two above
sys.path[0:1] = [str(Path(__file__).resolve().parents[3])]

from spark_jobs.engine.corrections import CodedCorrections, CorrectionBuffer, Updates  # noqa: E402
from spark_jobs.engine.twins.corrections import NaiveCorrections  # noqa: E402
from spark_jobs.model import Frontier  # noqa: E402

UPDATES_PER_TIME = 16
FUTURE_OFFSET = 1 << 40
SMALL, LARGE = 512, 2048
READ_ROWS = 10_000


class Figure(NamedTuple):
    """One measured figure; `bound` None is for information."""

    name: str
    measured: str
    bound: str | None
    is_met: bool = True


def append_pattern(n_times: int) -> list[Updates]:
    """Every time brings new rows; nothing ever cancels."""
    rows = np.arange(UPDATES_PER_TIME)
    return [_updates((rows + t * UPDATES_PER_TIME, t, 1)) for t in range(n_times)]


def upsert_pattern(n_times: int) -> list[Updates]:
    """Every time replaces the value of the same keys: the new value in, the previous one out."""
    keys = np.arange(UPDATES_PER_TIME // 2)
    values = [keys + t * keys.size for t in range(n_times)]
    return [_updates((values[t], t, 1), *([(values[t - 1], t, -1)] if t else [])) for t in range(n_times)]


def temporal_filter_pattern(n_times: int) -> list[Updates]:
    """Every time brings rows with their far-future retractions, and takes both back for the rows of the time before.

    The retraction taken back lies at another future time, so the future only ever grows.
    """
    keys = np.arange(UPDATES_PER_TIME // 4)
    batches = []
    for t in range(n_times):
        new, old = keys + t * keys.size, keys + (t - 1) * keys.size
        taken_back = [(old, t, -1), (old, t + FUTURE_OFFSET, 1)] if t else []
        batches.append(_updates((new, t, 1), (new, t + FUTURE_OFFSET, -1), *taken_back))
    return batches


PATTERNS: dict[str, Callable[[int], list[Updates]]] = {
    "append": append_pattern,
    "upsert": upsert_pattern,
    "temporal filter": temporal_filter_pattern,
}


def filled(batches: list[Updates]) -> CodedCorrections:
    """A buffer that holds all batches, as when its input ran far ahead of what was written."""
    buffer = CodedCorrections()
    for batch in batches:
        buffer.insert(batch)
    return buffer


def drain_stepwise(buffer: CodedCorrections, n_times: int) -> None:
    """Write one time after the other, feeding back what was written."""
    for t in range(n_times):
        upper = Frontier.at(t + 1)
        buffer.insert_negated(buffer.updates_before(upper))
        buffer.advance_since(upper)


def advance_in_one_jump(buffer: CodedCorrections, n_times: int) -> None:
    """Move since across all times at once, then read everything before it."""
    buffer.advance_since(Frontier.at(n_times))
    buffer.consolidate_at_since()
    buffer.updates_before(Frontier.at(n_times + 1))


ROUTINES: dict[str, Callable[[CodedCorrections, int], None]] = {
    "stepwise": drain_stepwise,
    "one jump": advance_in_one_jump,
}


def catch_up(pattern: str, routine: str, n_times: int) -> tuple[float, int]:
    """CPU seconds and structural work of filling a buffer with `n_times` times and catching up."""
    batches = PATTERNS[pattern](n_times)
    started = time.process_time()
    buffer = filled(batches)
    ROUTINES[routine](buffer, n_times)
    return time.process_time() - started, buffer.copied


def catch_up_figures(repeats: int) -> Iterator[Figure]:
    """T = 2048 over T = 512, at most 6x in work and in time."""
    for pattern in PATTERNS:
        for routine in ROUTINES:
            runs = [(catch_up(pattern, routine, SMALL), catch_up(pattern, routine, LARGE)) for _ in range(repeats)]
            small, large = min(run[0][0] for run in runs), min(run[1][0] for run in runs)
            work = runs[0][1][1] / runs[0][0][1]
            measured = f"{work:.2f}x work, {large / small:.2f}x time ({small * 1e3:.0f} → {large * 1e3:.0f} ms)"
            yield Figure(f"catch up {pattern}, {routine}", measured, "≤ 6x", work <= 6 and large / small <= 6)


def insert_rate(batches: list[Updates]) -> float:
    """Updates per CPU second."""
    started = time.process_time()
    filled(batches)
    return sum(batch.size for batch in batches) / (time.process_time() - started)


def valued_insert_rate(rows: int, batch_rows: int) -> float:
    """Updates per CPU second of a buffer of strings, all distinct."""
    values = [f"row-{i:08}" for i in range(rows)]
    ones = np.ones(batch_rows, np.int64)
    buffer = CorrectionBuffer()
    started = time.process_time()
    for start in range(0, rows, batch_rows):
        buffer.insert(values[start : start + batch_rows], np.full(batch_rows, start, np.uint64), ones)
    return rows / (time.process_time() - started)


def insert_figures(repeats: int) -> Iterator[Figure]:
    """At least 1M updates/s on one core, whatever the size of the batches."""
    random = np.random.default_rng(7)
    for batch_rows in (16, 1_000, 100_000):
        batches = [random_updates(random, batch_rows, 0, 1_000_000) for _ in range(1_000_000 // batch_rows)]
        rate = max(insert_rate(batches) for _ in range(repeats)) / 1e6
        yield Figure(f"insert codes, batches of {batch_rows:,}", f"{rate:.2f}M updates/s", "≥ 1M/s", rate >= 1)
    rate = max(valued_insert_rate(500_000, 1_000) for _ in range(repeats)) / 1e6
    yield Figure("insert new strings, batches of 1,000", f"{rate:.2f}M updates/s", "≥ 1M/s", rate >= 1)


def read_times(buffer: CodedCorrections, n_reads: int) -> Iterator[float]:
    """CPU seconds of reads of 10,000 fresh updates each, with the feedback between them."""
    random = np.random.default_rng(8)
    for i in range(1, n_reads + 1):
        buffer.insert(random_updates(random, READ_ROWS, (i - 1) * 1_000, i * 1_000))
        upper = Frontier.at(i * 1_000)
        started = time.process_time()
        written = buffer.updates_before(upper)
        yield time.process_time() - started
        buffer.insert_negated(written)
        buffer.advance_since(upper)


def future_figures(future: int, repeats: int) -> Iterator[Figure]:
    """A large future adds at most 10 % to a read of 10,000."""
    random = np.random.default_rng(9)
    alone, beside = [], []
    held = CodedCorrections()
    for start in range(0, future, 1_000_000):
        held.insert(random_updates(random, min(1_000_000, future - start), FUTURE_OFFSET, 2 * FUTURE_OFFSET))
    n_reads = 20 * repeats
    # turn about, so that other load on the machine meets both
    for alone_seconds, beside_seconds in zip(
        read_times(CodedCorrections(), n_reads), read_times(held, n_reads), strict=True
    ):
        alone.append(alone_seconds)
        beside.append(beside_seconds)
    added = statistics.median(beside) / statistics.median(alone) - 1
    measured = f"{added:+.1%} ({statistics.median(alone) * 1e3:.2f} → {statistics.median(beside) * 1e3:.2f} ms)"
    yield Figure(f"read {READ_ROWS:,} beside {future:,} in the future", measured, "≤ +10 %", added <= 0.10)
    yield Figure("first read, which buckets the future", f"{alone[0] * 1e3:.2f} → {beside[0] * 1e3:.2f} ms", None)


def twin_figures() -> Iterator[Figure]:
    """The twin beside us, at sizes that it can bear."""
    random = np.random.default_rng(10)
    batches = [random_updates(random, 1_000, 0, 100_000) for _ in range(100)]
    yield _paired("insert 100,000 and read all", batches, lambda buffer: buffer.updates_before(Frontier.empty()))
    batches = [random_updates(random, 1_000, FUTURE_OFFSET, 2 * FUTURE_OFFSET) for _ in range(100)]
    batches.append(random_updates(random, 1_000, 0, 1_000))
    yield _paired(
        "20 reads of 1,000 beside 100,000",
        batches,
        lambda buffer: [buffer.updates_before(Frontier.at(1_000)) for _ in range(20)],
    )
    for pattern, make in PATTERNS.items():
        yield _paired(f"catch up {pattern}, stepwise, T = 128", make(128), lambda buffer: _drain(buffer, 128))


def _paired(name: str, batches: list[Updates], work: Callable[[CodedCorrections | NaiveCorrections], object]) -> Figure:
    ours, twin = CodedCorrections(), NaiveCorrections()
    started = time.process_time()
    for batch in batches:
        ours.insert(batch)
    work(ours)
    our_seconds = time.process_time() - started
    triples = [batch.triples() for batch in batches]
    started = time.process_time()
    for rows in triples:
        twin.insert(rows)
    work(twin)
    twin_seconds = time.process_time() - started
    if ours.contents().triples() != twin.contents():
        raise AssertionError(f"{name}: the twin holds something else")
    measured = f"{our_seconds * 1e3:.1f} ms, twin {twin_seconds * 1e3:.1f} ms: {twin_seconds / our_seconds:.0f}x faster"
    return Figure(f"twin: {name}", measured, None)


def _drain(buffer: CodedCorrections | NaiveCorrections, n_times: int) -> None:
    for t in range(n_times):
        upper = Frontier.at(t + 1)
        buffer.insert_negated(buffer.updates_before(upper))  # type: ignore[arg-type]
        buffer.advance_since(upper)


def random_updates(random: np.random.Generator, rows: int, first_time: int, end_time: int) -> Updates:
    """Updates at uniform times of `[first_time, end_time)` to a million rows."""
    times = random.integers(first_time, end_time, rows).astype(np.uint64)
    return Updates(times, random.integers(0, 1_000_000, rows), random.choice(np.array([-1, 1]), rows))


def _updates(*parts: tuple[np.ndarray, int, int]) -> Updates:
    """Rows of (codes, one time, one diff), part by part."""
    sizes = [codes.size for codes, _, _ in parts]
    return Updates(
        np.repeat(np.array([when for _, when, _ in parts], np.uint64), sizes),
        np.concatenate([codes for codes, _, _ in parts]),
        np.repeat(np.array([diff for _, _, diff in parts], np.int64), sizes),
    )


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--future", type=int, default=10_000_000, help="updates in the future (default: 10,000,000)")
    parser.add_argument("--repeats", type=int, default=5, help="repeats, of which the best counts (default: 5)")
    options = parser.parse_args()
    catch_up("append", "stepwise", 64)  # loads the compiled loops
    missed = 0
    for figures in (
        insert_figures(options.repeats),
        future_figures(options.future, options.repeats),
        catch_up_figures(options.repeats),
        twin_figures(),
    ):
        for figure in figures:
            missed += not figure.is_met
            verdict = "" if figure.bound is None else f"{figure.bound:8} {'met' if figure.is_met else 'MISSED'}"
            print(f"{figure.name:46} {figure.measured:58} {verdict}".rstrip(), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
