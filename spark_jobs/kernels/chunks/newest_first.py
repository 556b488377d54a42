"""Latest-at over chunks that lie elsewhere and are read a few at a time, from the newest on.

A chunk that ends before a row holds no later row, and not that row's retraction either: a retraction carries the row's
own times. So an answer at time t is final once every chunk that ends at or after t has been read, and not before: until
then the value may still be taken back. What has been read is therefore looked at as a whole, not read by read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from spark_jobs.kernels.chunks.reads import Latest

FIRST_CHUNKS = 8
"""Chunks that the second read takes in; every further one takes twice as many, so that the number of reads grows with
the logarithm of how far back the answer lies."""


def latest_newest_first(
    ends: Sequence[int],
    newest_start: int | None,
    components: Sequence[str],
    *,
    read: Callable[[int | None, int | None], pa.Table],
    answer: Callable[[pa.Table], dict[str, Latest]],
    first_chunks: int = FIRST_CHUNKS,
) -> dict[str, Latest]:
    """The latest value per component of the chunks that start at or before the time asked for.

    Args:
        ends: the chunks' ends on the timeline, greatest first.
        newest_start: the greatest of their starts; None if there are no such chunks.
        components: the components asked for.
        read: `read(least, below)` gives the chunks with `least <= end < below`, where `below` None is no bound. With
            `least` None it gives none of them. The first read also gives the chunks without times.
        answer: what a table of chunks answers, retractions taken into account.
        first_chunks: see `FIRST_CHUNKS`.
    """
    chunks = read(newest_start, None)
    above, step = newest_start, first_chunks
    while True:
        latest = answer(chunks)
        if above is None:
            return latest
        needed = _least_end_to_read(latest, components, [end for end in ends if end < above], step)
        if needed is None:
            return latest
        chunks = pa.concat_tables([chunks, read(needed, above)])
        above, step = needed, step * 2


def _least_end_to_read(latest: dict[str, Latest], components: Sequence[str], left: list[int], step: int) -> int | None:
    """The end down to which chunks have to be read yet; None if no chunk that is left can change an answer.

    `left` are the ends of the chunks not read, greatest first.
    """
    if any(component not in latest for component in components):
        return left[min(step, len(left)) - 1] if left else None
    oldest = min((row.time for row in latest.values() if row.time is not None), default=None)
    return oldest if oldest is not None and left and left[0] >= oldest else None
