"""Work in threads of this process, for what leaves Python's lock alone: Arrow, numpy, compiled kernels, and waiting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""As many as there are processors for this process."""

Given = TypeVar("Given")
Result = TypeVar("Result")


def in_threads(do: Callable[[Given], Result], given: Sequence[Given]) -> Iterator[Result]:
    """The results in order; the first error is raised once all threads have ended."""
    if len(given) < 2 or THREADS == 1:
        return iter([do(each) for each in given])
    with ThreadPoolExecutor(THREADS) as threads:
        return iter(list(threads.map(do, given)))
