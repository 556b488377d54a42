"""Threads of this process, for work without Python's lock: Arrow, numpy, compiled kernels, and waiting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""The number of threads: one for each processor that this process may use."""

REQUESTS_AT_ONCE = 8
"""The number of files that are asked for at once: most are small, and waiting for each takes most of the time."""

_threads = THREADS
"""The number of threads that `in_threads` uses."""

Given = TypeVar("Given")
Result = TypeVar("Result")


def in_threads(do: Callable[[Given], Result], given: Sequence[Given], at_once: int | None = None) -> Iterator[Result]:
    """The results of `do` for all of `given`, in order. The first error is raised once all threads have ended.

    `at_once`: the most calls at a time; None: one for each thread."""
    n_threads = _threads if at_once is None else min(_threads, at_once)
    if len(given) < 2 or n_threads == 1:
        return iter([do(each) for each in given])
    with ThreadPoolExecutor(n_threads) as threads:
        return iter(list(threads.map(do, given)))


def map_requests(
    do: Callable[[Given], Result], given: Iterable[Given], at_once: int = REQUESTS_AT_ONCE
) -> Iterator[Result]:
    """Yield the results of `do` for all of `given`, in order. `do` waits for a store most of its time, so that it is
    called in `at_once` threads."""
    with ThreadPoolExecutor(at_once) as threads:
        yield from threads.map(do, given)


def work_alone() -> None:
    """Have `in_threads` use one thread in this process: another process works on each other processor."""
    global _threads  # noqa: PLW0603
    _threads = 1
