"""The deltas of a source's entities, as the source file describes them and the kernels take them: the meaning of a row,
the policy of compaction, and the columns that are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns import numbers, sequence_texts
from spark_jobs.engine.deltas import (
    Adaptive,
    CompactionPolicy,
    DeltaColumns,
    FullMerge,
    Meaning,
    Strategy,
    TieredMerge,
    TimeBoundary,
    lists_of,
)
from spark_jobs.sources import CompactionRules, Operations, Source, State
from spark_jobs.storage.descriptions.sql import name

UNREADABLE = "unreadable"
_LISTS = {"indices": pa.int64(), "values": pa.float64()}


def meaning_of(source: Source) -> Meaning:
    """The meaning of a row of `chain_inputs`: the change that it makes to its entity."""
    state, sequence = _state(source), "sequence" if source.sequence else None
    if state.operations is None:
        components = {n: f"v_{c}" if isinstance(c, str) else c for n, c in state.components.items()}
        return Meaning(state.mode, state.datatype, components, sequence=sequence)
    named = dict.fromkeys(state.components, 0) or None
    return Meaning(state.mode, state.datatype, named, state.length, _delta_columns(state.operations), sequence)


def _delta_columns(operations: Operations) -> DeltaColumns:
    given = {key: f"v_{key}" for key in _operands(operations)}
    listed = UNREADABLE if _LISTS.keys() & given.keys() else None
    return DeltaColumns("entity", "event_time", "row_id", delta_id="delta_id", unreadable=listed, **given)


def weighs_traffic(source: Source) -> bool:
    """True if the source's chains are compacted by the strategy adaptive, which weighs reads and writes."""
    return source.compaction is not None and source.compaction.strategy == "adaptive"


def policy_of(source: Source) -> CompactionPolicy:
    """The policy by which chains are compacted. The strategy adaptive has no counts of reads and writes yet: it acts as
    if nobody read."""
    rules = source.compaction or CompactionRules()
    strategies: dict[str, Strategy] = {
        "full": FullMerge(),
        "tiered": TieredMerge(rules.newest_pending),
        "time_boundary": TimeBoundary(rules.interval_us or 1),
        "adaptive": Adaptive(0, 1, keep_recent=rules.newest_pending),
    }
    return CompactionPolicy(
        strategies[rules.strategy], rules.delta_threshold, rules.age_threshold_us, rules.max_chain_length
    )


def policy_of_runs(source: Source) -> CompactionPolicy:
    """The policy by which a run compacts chains: `policy_of`, or what it must do of it if the source file leaves the
    rest to `background`."""
    return replace(policy_of(source), deferred=source.compaction is not None and source.compaction.background)


def chain_columns(source: Source) -> list[str]:
    """The columns of an update that `chain_inputs` reads."""
    state = _state(source)
    marks = ["entity", "event_time", "time", "row_id", "diff", *(f"c_{column}" for column in source.sequence)]
    if state.operations is not None:
        return [*dict.fromkeys([*marks, *(f"c_{c}" for c in _operands(state.operations).values()), "delta_id"])]
    values = [f"c_{column}" for column in state.components.values() if isinstance(column, str)]
    if state.delete_when is not None:
        values.append(f"c_{state.delete_when.column}")
    return [*dict.fromkeys([*marks, *values])]


def chain_inputs(updates: pa.Table, source: Source, known_us: int) -> pa.Table:
    """The columns that folding a chain takes, made of updates with `chain_columns`.

    They are entity, event_time, time, row_id, diff, and the columns that `meaning_of` names. If the source has a
    sequence, `sequence` is among them. If the source deletes by a column, `gone` is true for the rows that delete.
    Times are in microseconds.

    A row that was visible before `known_us` counts as visible from `known_us` on: it was future-dated, and no reader of
    an earlier time has seen it.
    """
    state = _state(source)
    columns = {name: updates[name] for name in ("entity", "row_id", "diff")}
    columns["event_time"] = pa.array(numbers(updates["event_time"]))
    columns["time"] = pa.array(np.maximum(numbers(updates["time"]), known_us))
    if source.sequence:
        columns["sequence"] = sequence_texts([updates[f"c_{column}"] for column in source.sequence])
    if state.operations is not None:
        return pa.table(columns | _operations(updates, state.operations, state.datatype))
    for component in state.components.values():
        if isinstance(component, str):
            columns[f"v_{component}"] = updates[f"c_{component}"]
    if state.delete_when is not None:
        column = updates[f"c_{state.delete_when.column}"]
        deleting = pa.array(list(state.delete_when.values), column.type)
        columns["gone"] = pc.is_in(column, value_set=deleting, skip_nulls=True)
    return pa.table(columns)


def _operands(operations: Operations) -> dict[str, str]:
    """The columns of a source that describe operations, by their role (the field of `Operations`)."""
    return {key: column for key, column in operations.model_dump().items() if column is not None}


def _operations(updates: pa.Table, operations: Operations, datatype: str) -> dict[str, pa.Array]:
    operands = {key: updates[f"c_{column}"] for key, column in _operands(operations).items()}
    unreadable = np.zeros(updates.num_rows, np.bool_)
    for key in _LISTS.keys() & operands.keys():
        element = pa.int64() if datatype == "int64" else _LISTS[key]
        operands[key], broken = lists_of(operands[key].combine_chunks(), element)
        unreadable |= broken
    columns = {f"v_{key}": column for key, column in operands.items()} | {"delta_id": updates["delta_id"]}
    return columns | {UNREADABLE: pa.array(unreadable)} if _LISTS.keys() & operands.keys() else columns


def component_columns(source: Source) -> list[str]:
    """The SQL names of the columns in which a read returns a state: its components, or `vector` if it has none."""
    state = _state(source)
    return [name(component) for component in state.components] or ["vector"]


def _state(source: Source) -> State:
    assert source.state is not None, "callers look whether the source has state"
    return source.state
