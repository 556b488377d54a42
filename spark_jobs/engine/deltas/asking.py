"""States at many (entity, event time, visible time), each from one checkpoint and the deltas after it.

Definition: the state at E as known at T is the result of replaying, in chain order, the deltas with `event_time <= E`
and `known_from <= T < known_to`. The answer is bit-equal to that with every strategy, wherever a chain was cut.
Cost: O(log n) to find the checkpoint of a question, then its deltas up to E. These are at most those of one segment if
the rows before it are known at T.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spark_jobs.engine.deltas.batch import NO_PARENT, DeltaBatch
from spark_jobs.engine.deltas.fold import Transform, fold
from spark_jobs.engine.deltas.ops import Refusal
from spark_jobs.engine.deltas.packing import UNRESOLVED_PARENT
from spark_jobs.engine.deltas.segments import Segments
from spark_jobs.engine.deltas.states import States

Array = npt.NDArray[Any]

AT_ONCE = 1 << 17
"""The number of questions that are answered together; the deltas to fold for them are kept in memory."""

FOLDED_AT_ONCE = 1 << 22
"""The number of deltas that are folded together, if no single question needs more.

Many questions may ask for an entity at visible times at which much of it was not known yet. Then its chain is folded
from far back for each of them."""


def states_for(
    segments: Segments,
    entity: Array,
    event_time: Array,
    known_at: Array,
    *,
    transforms: Mapping[str, Transform] | None = None,
) -> States:
    """One state per question (entity code, event time, visible time), in the order of the questions.

    Per question, `segments` must have the segment of its event time and the segments before it, back to one whose
    checkpoint was settled at its visible time. The state of an entity without such a segment is absent.
    """
    answers = [
        _answer(segments, entity[i : i + AT_ONCE], event_time[i : i + AT_ONCE], known_at[i : i + AT_ONCE], transforms)
        for i in range(0, len(entity), AT_ONCE)
    ]
    result = States.absent(0, segments.deltas.dtype)
    for answer in answers:
        result = answer if not len(result) else result.concat(answer)
    return result


def _answer(
    segments: Segments, entity: Array, event_time: Array, known_at: Array, transforms: Mapping[str, Transform] | None
) -> States:
    number, first, end = _places(
        segments.entity, segments.start_time, segments.settled, segments.bounds, segments.deltas.event_time, entity,
        event_time, known_at,
    )  # fmt: skip
    lengths = end - first
    if len(entity) > 1 and lengths.sum() > FOLDED_AT_ONCE:
        half = len(entity) // 2
        one = _answer(segments, entity[:half], event_time[:half], known_at[:half], transforms)
        return one.concat(_answer(segments, entity[half:], event_time[half:], known_at[half:], transforms))
    question = np.repeat(np.arange(len(entity)), lengths)
    rows = np.arange(len(question)) + np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
    asked = known_at[question]
    visible = (segments.known_from[rows] <= asked) & (asked < segments.known_to[rows])
    at_hand = None
    if segments.deltas.declares_parents:
        has_answer = visible | segments.is_current[rows]
        at_hand = (question[has_answer], segments.deltas.identities[rows[has_answer]])
    rows, question = rows[visible], question[visible]
    batch = segments.deltas.take(rows)
    batch = replace(batch, entity=question, entity_count=len(entity))
    if at_hand is not None:
        batch = replace(batch, parent=_parents_at_hand(batch, segments.refusal[rows], at_hand))
    nothing = States.absent(1, segments.deltas.dtype)
    base = segments.base.concat(nothing).take(np.where(number < 0, len(segments), number))
    return fold(batch, base, transforms=transforms).states


def _parents_at_hand(batch: DeltaBatch, refusal: Array, at_hand: tuple[Array, Array]) -> Array:
    """The parents that the fold has to look for: those with a row after the checkpoint that is visible or stands.

    Only one row of an identity stands at a time, so the row of any other parent is before the checkpoint. Such parents
    keep the verdict of the time when the chain was folded, as nothing before the checkpoint has changed since."""
    keys_at_hand = set(zip(*(column.tolist() for column in at_hand), strict=True))
    keys = zip(batch.entity.tolist(), batch.parent.tolist(), strict=True)
    before = np.array([key not in keys_at_hand for key in keys], np.bool_)
    missing = refusal == Refusal.MISSING_PARENT
    return np.where(before, np.where(missing & (batch.parent != NO_PARENT), UNRESOLVED_PARENT, NO_PARENT), batch.parent)


@njit(cache=True, nogil=True)
def _places(
    entity: Array, start_time: Array, settled: Array, bounds: Array, times: Array,
    asked_entity: Array, asked_time: Array, asked_known: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Per question, its segment (-1 if none) and the bounds of its deltas, which may extend over later segments."""
    codes = entity[-1] + 1 if len(entity) else 0
    begins = np.searchsorted(entity, np.arange(codes + 1))
    count = len(asked_entity)
    number, first, end = np.empty(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)
    for question in range(count):
        code = asked_entity[question]
        if not 0 <= code < codes:
            number[question] = -1
            continue
        lo, after = begins[code], begins[code + 1]
        at, known_at = asked_time[question], asked_known[question]
        low, high = lo, after
        while low < high:
            middle = (low + high) // 2
            if start_time[middle] <= at and settled[middle] <= known_at:
                low = middle + 1
            else:
                high = middle
        number[question] = low - 1 if low > lo else -1
        if low > lo:
            first[question] = bounds[low - 1]
            left, right = bounds[low - 1], bounds[after]
            while left < right:
                middle = (left + right) // 2
                if times[middle] <= at:
                    left = middle + 1
                else:
                    right = middle
            end[question] = left
    return number, first, end
