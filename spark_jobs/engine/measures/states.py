"""Faults of the states that an attempt wrote, and the balance of their sums with those of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns.equality import same_values
from spark_jobs.engine.columns.lists import Lists, lengths
from spark_jobs.engine.columns.plain import Flags, Ints, are, numbers, present
from spark_jobs.engine.measures.sums import Adds, Scaled
from spark_jobs.engine.measures.versions import at_wrong_time
from spark_jobs.engine.restatement.comparison import LIVE

BALANCE = "balance_of_"
"""Prefix of the measure of an additive component: the sum that states gained less the sum that rows add."""

OVERFLOWN = "states_with_overflown_sums"
"""Measure: the states with a sum that is null, because it does not fit into its type."""
OVERFLOWN_BEFORE = "closed_states_with_overflown_sums"
"""Measure: the same, among the states that an attempt closes."""

Components = Mapping[str, str | int]
"""Additive components by name: the column whose value a row adds, or a constant that every row adds."""


def judge_states(
    states: pa.Table, *, vector: str, named: bool, width: int | None, reached_us: int, known_from_us: int, sums: bool
) -> Adds:
    """The amount that each state adds to the measures of gold.

    Args:
        states: rows of the table of states that an attempt wrote.
        vector: the column of the state's values.
        named: True if components have names.
        width: the number of components; None: the number of the state's flags.
        reached_us: a time in microseconds; no state may have a delta at or beyond it.
        known_from_us: the time of every change of the publication, in microseconds.
        sums: True if the values are sums; a sum that does not fit into its type is null.
    """
    live = are(states["era"], LIVE)
    beyond = overflown(states[vector]) if sums else np.zeros(states.num_rows, np.bool_)
    wanted = lengths(states["seen"]) if width is None else np.full(states.num_rows, width, np.int64)
    shaped = np.ones(states.num_rows, np.bool_)
    for column in (*(("names",) if named else ()), vector, "seen"):
        shaped &= present(states[column]) & (lengths(states[column]) == wanted)
    return {
        "states_of_wrong_width": live & ~shaped,
        "states_without_deltas": live & (numbers(states["delta_count"]) < 1),
        "states_beyond_reached": live & present(states["timestamp"]) & (numbers(states["timestamp"]) >= reached_us),
        "changes_at_wrong_time": at_wrong_time(states, known_from_us),
        OVERFLOWN: live & beyond,
        OVERFLOWN_BEFORE: ~live & beyond,
    }


def overflown(vectors: pa.ChunkedArray) -> Flags:
    """Flags of the vectors of sums that have a null."""
    parts = vectors.combine_chunks()
    absent = pc.is_null(pc.list_flatten(parts)).to_numpy(zero_copy_only=False)
    owners = pc.list_parent_indices(parts).to_numpy(zero_copy_only=False)
    return np.bincount(owners[absent], minlength=len(parts)) > 0


def gains(rows: pa.Table, *, everything: bool) -> Ints:
    """The weight of each row of an attempt in a sum over all published rows: 1 for a live row.

    A row that closes another one weighs -1, or 0 with `everything`: then the attempt writes all rows anew."""
    return np.where(are(rows["era"], LIVE), 1, 0 if everything else -1)


def gained_by_states(states: pa.Table, *, everything: bool, components: Sequence[str], deltas: bool) -> Adds:
    """The values that the states of an attempt add to the balance of each component.

    `components` are in the order of the vector. With `deltas`, also the number of deltas that the states add."""
    by = gains(states, everything=everything)
    vectors = Lists.of(states["ints"]) if components else None
    adds: dict[str, Ints | Scaled] = {}
    for place, component in enumerate(components):
        assert vectors is not None, "components have a vector"
        values = np.zeros(states.num_rows, np.int64)
        reaching = vectors.lengths > place
        values[reaching] = vectors.values[(np.cumsum(vectors.lengths) - vectors.lengths)[reaching] + place]
        adds[f"{BALANCE}{component}"] = Scaled(values, by)
    return {**adds, "deltas_folded": by * numbers(states["delta_count"])} if deltas else adds


def gained_by_rows(rows: pa.Table, *, components: Components, sign: int = -1) -> Adds:
    """The values that rows add to the balance of each component: their value, times `sign`, times their diff."""
    by = sign * numbers(rows["diff"])
    return {
        f"{BALANCE}{component}": Scaled(
            numbers(rows[value]) if isinstance(value, str) else np.full(rows.num_rows, value, np.int64), by
        )
        for component, value in components.items()
    }


def off_their_row(
    of_states: Iterable[pa.Table], of_rows: Iterable[pa.Table], *, vector: str, row_columns: Sequence[str], single: bool
) -> pa.Table:
    """The states that differ from the row that is their last delta.

    The columns are entity, at_delta, `state` (the values of the state) and `told` (those of the row).

    Args:
        of_states: the columns entity, at_delta and `vector`, some states at a time.
        of_rows: the columns row_id and those named in `row_columns`.
        vector: a column of lists of numbers.
        row_columns: the columns of the rows that have the values of the state, in the order of the vector.
        single: True if states have the values of rows rounded to 32-bit numbers.
    """
    states, rows = pa.concat_tables(of_states), pa.concat_tables(of_rows)
    row_ids, last = numbers(rows["row_id"]), numbers(states["at_delta"], -1)
    order = np.argsort(row_ids, kind="stable")
    first, past = np.searchsorted(row_ids[order], last, "left"), np.searchsorted(row_ids[order], last, "right")
    of_state = np.repeat(np.arange(states.num_rows), past - first)
    runs = np.cumsum(past - first) - (past - first)
    of_row = order[np.arange(len(of_state)) - np.repeat(runs, past - first) + np.repeat(first, past - first)]
    vectors = states[vector].combine_chunks().take(pa.array(of_state))
    kind = vectors.type.value_type
    columns = [_cast(rows[column].combine_chunks().take(pa.array(of_row)), kind, single) for column in row_columns]
    elements = np.arange(len(row_columns)) * len(of_row) + np.arange(len(of_row))[:, None]
    flat = pa.concat_arrays(columns).take(pa.array(elements.ravel()))
    offsets = pa.array(np.arange(len(of_row) + 1) * len(row_columns), pa.int32())
    expected = pa.ListArray.from_arrays(offsets, flat).cast(vectors.type)
    differing = pa.array(~_same(vectors, expected))
    wrong_states = states.select(["entity", "at_delta"]).take(pa.array(of_state))
    return wrong_states.append_column("state", vectors).append_column("told", expected).filter(differing)


def _same(one: pa.Array, other: pa.Array) -> Flags:
    """Flags of the lists that are equal to the other list at the same place; 0.0 equals -0.0."""
    if pa.types.is_floating(one.type.value_type):
        one, other = (_without_negative_zero(lists) for lists in (one, other))
    return same_values(pa.chunked_array([one]), pa.chunked_array([other]))


def _without_negative_zero(lists: pa.Array) -> pa.Array:
    flat = pc.add(pc.list_flatten(lists), 0.0)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    return pa.ListArray.from_arrays(offsets, flat, mask=lists.is_null())


def _cast(column: pa.Array, kind: pa.DataType, single: bool) -> pa.Array:
    rounded = column.cast(pa.float32(), safe=False) if single else column
    return rounded.cast(kind, safe=pa.types.is_integer(kind))


def judge_off_their_row(states: pa.Table) -> Adds:
    """One for each state that differs from its row; see `off_their_row`."""
    return {"states_off_their_row": np.ones(states.num_rows, np.bool_)}
