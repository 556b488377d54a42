"""Pools of all deltas of some chains: those of published segments, and the rows that came or went since."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.frontiers import STILL_KNOWN
from spark_jobs.engine.deltas.judged import EarlierDeltas, pairs
from spark_jobs.engine.deltas.ops import DeltaError, DuplicateDeltaError
from spark_jobs.engine.deltas.ordering import duplicate_at, in_chain_order
from spark_jobs.engine.deltas.packing import known_parents
from spark_jobs.engine.deltas.segments import Segments

Array = npt.NDArray[Any]


class RetractionOfNothingError(DeltaError):
    """A row is taken back that is in no chain. Facts: `event_time`, `row_id`."""

    code = "retraction_of_nothing"


@dataclass(frozen=True, slots=True)
class PooledDeltas:
    """Rows that came (`diff` > 0) or went, as deltas by entity code, with the time at which each became visible."""

    deltas: DeltaBatch
    time: Array
    diff: Array
    delta_ids: pa.Array | None = None
    parents: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """All deltas of the entities, in chain order; `touched` marks those that this restatement adds or takes back.

    `ties` order deltas of the same event time. Versions of a row with the same sequence have the same tie."""

    deltas: DeltaBatch
    ties: Array
    known_from: Array
    known_to: Array
    touched: Array
    delta_ids: pa.Array | None
    parents: pa.Array | None

    def take(self, rows: Array) -> Pool:
        """The deltas at these positions, in that order."""
        texts = (None if t is None else t.take(pa.array(rows)) for t in (self.delta_ids, self.parents))
        numbers = (column[rows] for column in (self.ties, self.known_from, self.known_to, self.touched))
        return Pool(self.deltas.take(rows), *numbers, *texts)


def pool_of(published: Segments, changes: PooledDeltas, since: int, earlier: EarlierDeltas | None = None) -> Pool:
    """The deltas of published segments and those that came, each known until the row that takes it back.

    Deltas that are known at no visible time beyond `since` are left out. The changes may be in any order. `earlier` are
    further deltas of the chains, whose ids count as well.

    Raises RetractionOfNothingError, and DuplicateDeltaError for a row, or a delta id, that is known twice at one time.
    """
    published_deltas = published.deltas
    published_deltas = replace(
        published_deltas, entity=published.entity[published_deltas.entity], entity_count=changes.deltas.entity_count
    )
    published_deltas = replace(published_deltas.named_like(changes.deltas), parent=known_parents(published))
    changed = changes.deltas.named_like(published_deltas)
    ids = [None, None]
    if changes.delta_ids is not None and changes.parents is not None:
        ours, theirs = (published.delta_ids, published.parents), (changes.delta_ids, changes.parents)
        ids = [pa.concat_arrays([one, other]) for one, other in zip(ours, theirs, strict=True)]
    deltas = published_deltas.concat(changed)
    both = Pool(
        deltas,
        deltas.ties,
        np.concatenate((published.known_from, changes.time)),
        np.concatenate((published.known_to, np.full(len(changed), STILL_KNOWN))),
        np.concatenate((np.zeros(len(published_deltas), np.bool_), np.ones(len(changed), np.bool_))),
        *ids,
    )
    # the columns of the deltas are copied only once
    change_ties = both.ties[len(published_deltas) :]
    both = both.take(_standing_order(both, len(published_deltas), changes))
    _take_back(both, changes, change_ties)
    kept = (both.known_to > both.known_from) & (both.known_to > since)
    both = both if kept.all() else both.take(np.flatnonzero(kept))
    _refuse_rows_that_come_twice(both)
    _refuse_ids_that_come_twice(both, earlier)
    return both


def _standing_order(pool: Pool, n_held: int, changes: PooledDeltas) -> Array:
    """The places in the pool, in chain order, of its first `n_held` deltas and of the changes that come.

    Versions of a row with the same sequence are in the order in which they became known."""
    comes = np.flatnonzero(changes.diff > 0)
    for _ in range(2):
        places = np.concatenate((np.arange(n_held), n_held + comes))
        entity, event_time, ties = (
            column[places] for column in (pool.deltas.entity, pool.deltas.event_time, pool.ties)
        )
        order, _, repeated = in_chain_order(entity, event_time, ties, pool.deltas.entity_count)
        if repeated < 0:
            break
        comes = comes[np.argsort(changes.time[comes], kind="stable")]
    return places[order]


def _refuse_rows_that_come_twice(pool: Pool) -> None:
    """Raise DuplicateDeltaError if two deltas at the same place in a chain are known at one time."""
    deltas = pool.deltas
    order = np.arange(len(deltas))
    if deltas.sequences is not None:
        # versions of one row may have different sequences
        order = np.lexsort((pool.known_from, deltas.row_id, deltas.event_time, deltas.entity))
    twice = pool.known_from[order[1:]] < pool.known_to[order[:-1]]
    for column in (deltas.row_id, deltas.event_time, deltas.entity):
        twice &= column[order[1:]] == column[order[:-1]]
    if twice.any():
        raise duplicate_at(deltas, int(order[np.flatnonzero(twice)[0]]))


def _refuse_ids_that_come_twice(pool: Pool, earlier: EarlierDeltas | None) -> None:
    """Raise DuplicateDeltaError if two rows of an entity have the same delta id at one time.

    Then it would not be clear which of them a parent names."""
    if pool.delta_ids is None or pool.parents is None:
        return
    if pool.parents.null_count == len(pool.parents) and earlier is None:
        return
    ids, keys = [pool.delta_ids], [(pool.deltas.entity, pool.delta_ids)]
    row_id, known_from, known_to = pool.deltas.row_id, pool.known_from, pool.known_to
    if earlier is not None:
        ids, keys = [earlier.delta_id, *ids], [(earlier.entity, earlier.delta_id), *keys]
        row_id = np.concatenate((earlier.row_id, row_id))
        known_from = np.concatenate((earlier.known_from, known_from))
        known_to = np.concatenate((earlier.known_to, known_to))
    codes = np.concatenate(pairs(*keys))
    order = np.lexsort((known_from, codes))
    before, after = order[:-1], order[1:]
    twice = (codes[before] >= 0) & (codes[before] == codes[after]) & (known_from[after] < known_to[before])
    if twice.any():
        rows = [int(row_id[side[twice][0]]) for side in (before, after)]
        name = pa.chunked_array(ids)[int(after[twice][0])].as_py()
        raise DuplicateDeltaError(
            expected="one row per entity and delta id, of rows that stand at one time, where rows declare parents",
            found=f"the rows {rows[0]} and {rows[1]} with the delta id {name!r}",
            next_step="give every delta its own id, or take one of the rows back", delta_id=name, row_ids=rows,
        )  # fmt: skip


def _take_back(pool: Pool, changes: PooledDeltas, ties: Array) -> None:
    """End, for every retraction, the oldest version of its row (and sequence) that still stands.

    `ties` are those of the changes."""
    gone = np.flatnonzero(changes.diff < 0)
    if not len(gone):
        return
    gone = gone[np.argsort(changes.time[gone], kind="stable")]
    gone = _take_back_alike(pool, changes, gone, ties)
    current = np.flatnonzero(pool.known_to == STILL_KNOWN)
    columns = [np.concatenate((pool.ties[current], ties[gone]))]
    columns += [
        np.concatenate((getattr(pool.deltas, name)[current], getattr(changes.deltas, name)[gone]))
        for name in ("event_time", "entity")
    ]
    is_gone = np.repeat([False, True], [len(current), len(gone)])
    # stable: versions of a row stay in the order in which they became known, its retractions in that of their times
    order = np.lexsort((is_gone, *columns))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    begins[1:] |= is_gone[order][1:] != is_gone[order][:-1]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    order = np.lexsort((is_gone, rank, *columns))
    equal = np.all([c[order][1:] == c[order][:-1] for c in (rank, *columns)], axis=0)
    pair = np.flatnonzero(equal)
    if len(pair) != len(gone):
        matched = np.isin(np.arange(len(gone)), order[pair + 1] - len(current))
        row = gone[~matched][0]
        facts: dict[str, Any] = {name: int(getattr(changes.deltas, name)[row]) for name in ("event_time", "row_id")}
        raise RetractionOfNothingError(
            expected="retractions of rows that a chain holds", found=f"row {facts['row_id']}, which none does",
            next_step="recompute the source's chains with --accept-definition, and report this", **facts,
        )  # fmt: skip
    rows = current[order[pair]]
    pool.known_to[rows] = np.maximum(changes.time[gone[order[pair + 1] - len(current)]], pool.known_from[rows])
    pool.touched[rows] = True


def _take_back_alike(pool: Pool, changes: PooledDeltas, gone: Array, ties: Array) -> Array:
    """If several versions of a row came at one time, end for a retraction the version with the same content.

    Returns the other retractions. These end the oldest version of their row, whatever its content is."""
    deltas, place = pool.deltas, ("entity", "event_time")
    alike = (pool.known_from[1:] == pool.known_from[:-1]) & (pool.ties[1:] == pool.ties[:-1])
    for name in place:
        alike &= getattr(deltas, name)[1:] == getattr(deltas, name)[:-1]
    several = np.flatnonzero(np.append(alike, False) | np.append(False, alike))
    if not len(several):
        return gone
    versions: dict[tuple[Any, ...], list[int]] = {}
    for row in several[pool.known_to[several] == STILL_KNOWN].tolist():
        description = _description(deltas, row, place, pool.delta_ids, pool.parents)
        versions.setdefault((pool.ties[row], *description), []).append(row)
    others = []
    for row in gone.tolist():
        description = _description(changes.deltas, row, place, changes.delta_ids, changes.parents)
        same = versions.get((ties[row], *description), [])
        if same and pool.known_from[same[0]] <= changes.time[row]:
            ended = same.pop(0)
            pool.known_to[ended], pool.touched[ended] = changes.time[row], True
        else:
            others.append(row)
    return np.array(others, np.int64)


def _description(batch: DeltaBatch, row: int, place: tuple[str, ...], *texts: pa.Array | None) -> tuple[Any, ...]:
    """The place and the content of a delta, to be compared bit by bit."""
    cells = slice(batch.offsets[row], batch.offsets[row + 1])
    payload = (column[cells].tobytes() for column in (batch.indices, batch.values, batch.nulls))
    code = int(batch.transform[row])
    name = None if code < 0 else batch.transform_names[code]
    integers = (int(getattr(batch, column)[row]) for column in (*place, "op"))
    return (
        *integers,
        *payload,
        batch.scalar[row].tobytes(),
        name,
        *(None if t is None else t[row].as_py() for t in texts),
    )
