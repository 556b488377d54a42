"""What a source file says about its entities' deltas, as the kernels take it: the meaning of a row, the policy of
compaction, and the columns that are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.deltas.cutting import CompactionPolicy
from spark_jobs.kernels.deltas.mapping import Meaning
from spark_jobs.kernels.deltas.operations import DeltaColumns
from spark_jobs.kernels.deltas.strategies import Adaptive, FullMerge, Strategy, TieredMerge, TimeBoundary
from spark_jobs.sources import Compaction, Operations, Source, State
from spark_jobs.storage.sql import name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BATCH_BYTES = 1 << 26
"""Of rows that Spark hands to a worker at once, as it bounds batches by itself."""
MOST_ROWS = 10_000
"""Of them, as it bounds batches by itself."""
_DELTA_BYTES, _CELL_BYTES = 128, 16
"""Of a delta beside its values, and of each of these with its index and its null; an upper bound."""
UNREADABLE = "unreadable"
_LISTS = {"indices": "BIGINT", "values": "DOUBLE"}
_ONE_LIST = r"^\s*\[[^\[\]]*\]\s*$"
"""A text with one list and nothing after it."""


def meaning_of(source: Source) -> Meaning:
    """What a row of `chain_inputs` does to its entity."""
    state = _state(source)
    if state.operations is None:
        components = {n: f"v_{c}" if isinstance(c, str) else c for n, c in state.components.items()}
        return Meaning(state.mode, state.datatype, components)
    named = dict.fromkeys(state.components, 0) or None
    return Meaning(state.mode, state.datatype, named, state.length, _delta_columns(state.operations))


def _delta_columns(operations: Operations) -> DeltaColumns:
    given = {key: f"v_{key}" for key, column in operations.model_dump().items() if column is not None}
    listed = UNREADABLE if {"indices", "values"} & given.keys() else None
    return DeltaColumns("entity", "event_time", "row_id", delta_id="delta_id", unreadable=listed, **given)


def weighs_traffic(source: Source) -> bool:
    """Whether reads and writes decide how the source's chains are compacted."""
    return source.compaction is not None and source.compaction.strategy == "adaptive"


def policy_of(source: Source) -> CompactionPolicy:
    """When and how chains are compacted; the strategy adaptive still without its counts, as if nobody read."""
    told = source.compaction or Compaction()
    strategies: dict[str, Strategy] = {
        "full": FullMerge(),
        "tiered": TieredMerge(told.newest_pending),
        "time_boundary": TimeBoundary(told.interval_us or 1),
        "adaptive": Adaptive(0, 1, keep_recent=told.newest_pending),
    }
    return CompactionPolicy(
        strategies[told.strategy], told.delta_threshold, told.age_threshold_us, told.max_chain_length
    )


def rows_a_batch(source: Source) -> int | None:
    """Rows of a source's states, deltas and segments that surely fit into a batch of `BATCH_BYTES`; None where the
    source doesn't say how long its vectors are."""
    meaning = meaning_of(source)
    if meaning.dims is None:
        return None
    deltas = policy_of(source).max_chain_length if source.keeps_chains else 1
    return max(min(BATCH_BYTES // (deltas * (_DELTA_BYTES + _CELL_BYTES * meaning.dims)), MOST_ROWS), 1)


def chain_inputs(updates: DataFrame, source: Source, known_us: int) -> DataFrame:
    """What folding a chain reads of updates: entity, event_time, time, row_id, diff, what the source's `meaning_of`
    names, and `gone` for rows that delete. Times are in microseconds.

    A row that was visible before `known_us` counts as visible from then on: it was future-dated, and no reader of an
    earlier time has seen it.
    """
    state = _state(source)
    time = F.greatest(F.unix_micros("time"), F.lit(known_us)).alias("time")
    columns: list[Column | str] = ["entity", F.unix_micros("event_time").alias("event_time"), time, "row_id", "diff"]
    if state.operations is not None:
        return updates.select(*columns, *_operands(state.operations, state.datatype))
    read = dict.fromkeys(c for c in state.components.values() if isinstance(c, str))
    values = [F.col(f"c_{c}").alias(f"v_{c}") for c in read]
    if state.delete_when is not None:
        deletes = F.col(f"c_{state.delete_when.column}").isin(list(state.delete_when.values))
        values.append(F.coalesce(deletes, F.lit(False)).alias("gone"))
    return updates.select(*columns, *values)


def _operands(operations: Operations, datatype: str) -> list[Column]:
    read: list[Column] = []
    broken = F.lit(False)
    for key, column in operations.model_dump().items():
        if column is None:
            continue
        told = F.col(f"c_{column}")
        if key in _LISTS:
            element = "BIGINT" if datatype == "int64" else _LISTS[key]
            numbers = F.from_json(told, f"ARRAY<{element}>")
            # Spark reads the first JSON value of a text and passes over what follows it
            broken = broken | (told.isNotNull() & (numbers.isNull() | ~told.rlike(_ONE_LIST)))
            told = numbers
        read.append(told.alias(f"v_{key}"))
    if {"indices", "values"} & {key for key, column in operations.model_dump().items() if column is not None}:
        read.append(broken.alias(UNREADABLE))
    return [*read, F.col("delta_id")]


def component_columns(source: Source) -> list[str]:
    """SQL names of a state's components as a read gives them: each under its own name, or `vector`."""
    state = _state(source)
    return [name(component) for component in state.components] or ["vector"]


def _state(source: Source) -> State:
    assert source.state is not None, "callers look whether the source has state"
    return source.state
