"""Latest-at over chunks that are stored elsewhere and read a few at a time, from the newest on.

A retraction has the times of its row. So a chunk that ends before a row has neither a later row nor the retraction of
that row, and an answer at time t is final once every chunk that ends at or after t has been read. Until then the value
may still be taken back. Therefore each answer is computed from all chunks read so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from spark_jobs.engine.chunks.reads import Latest

FIRST_CHUNKS = 8
"""The number of chunks of the second read. Every further read has twice as many, so that the number of reads grows with
the logarithm of the distance to the answer."""


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
        read: `read(least, below)` returns the chunks with `least <= end < below`; None for `below` is no bound. With
            None for `least` it returns none of them. The first read also returns the chunks without times.
        answer: returns the latest values in a table of chunks, with retractions applied.
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
    """The least end of the chunks to read next; None if no unread chunk can change an answer.

    `left` are the ends of the unread chunks, greatest first.
    """
    if any(component not in latest for component in components):
        return left[min(step, len(left)) - 1] if left else None
    oldest = min((row.time for row in latest.values() if row.time is not None), default=None)
    return oldest if oldest is not None and left and left[0] >= oldest else None
