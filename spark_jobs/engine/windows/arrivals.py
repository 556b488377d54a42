"""Stream times, as Kafka counts them: the greatest time among the rows of a stream that arrived up to a row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
NO_TIME = -(2**63)
"""The stream time of a stream without rows."""


@njit(cache=True, nogil=True)
def stream_times(streams: Ints, times: Ints, reached: Ints) -> Ints:
    """The stream time of each row, its own time included; the rows are in the order in which they arrived.

    Args:
        streams: per row, the number of its stream, a place in `reached`.
        times: per row, its time; NO_TIME for a row that does not move the stream time.
        reached: per stream, the stream time before these rows; afterwards, the one after them.
    """
    of_row = np.empty(times.size, np.int64)
    for row in range(times.size):
        stream = streams[row]
        reached[stream] = max(reached[stream], times[row])
        of_row[row] = reached[stream]
    return of_row
