"""Work that several threads begin at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

Result = TypeVar("Result")


def at_once(work: Callable[[int], Result], threads: int) -> list[Result]:
    """What `work` returns for 0, 1, …, each in a thread of its own; the first error is raised once all have ended."""
    together = Barrier(threads, timeout=30)

    def begin(number: int) -> Result:
        together.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))
