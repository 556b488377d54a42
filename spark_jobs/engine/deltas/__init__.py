"""The delta algebra of gold: chains of deltas of many entities, folded into states bit-equal to those of a replay."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.deltas.asking import states_for
    from spark_jobs.engine.deltas.batch import Delta
    from spark_jobs.engine.deltas.chain_versions import ChainVersion, deltas_back, versions
    from spark_jobs.engine.deltas.cutting import AT_ONCE, NEVER, CompactionPolicy, Need, ages_from
    from spark_jobs.engine.deltas.frontiers import (
        ALWAYS,
        LATEST,
        STILL_KNOWN,
        UNMOVED,
        BelowHorizon,
        BelowSince,
        Frontiers,
    )
    from spark_jobs.engine.deltas.judged import JudgedDeltas
    from spark_jobs.engine.deltas.mapping import Meaning, changes_of
    from spark_jobs.engine.deltas.modes import fold_add, fold_diff
    from spark_jobs.engine.deltas.operations import DeltaColumns
    from spark_jobs.engine.deltas.ops import DuplicateDeltaError, Op, Refusal, Status
    from spark_jobs.engine.deltas.packing import checkpoints_of, pack, unpack
    from spark_jobs.engine.deltas.parting import parts_of
    from spark_jobs.engine.deltas.restating import RestatedChains, restate_chains
    from spark_jobs.engine.deltas.rows import RowsNeededError
    from spark_jobs.engine.deltas.segments import Segments
    from spark_jobs.engine.deltas.sizes import bytes_of
    from spark_jobs.engine.deltas.states import NO_DELTA, EntityState, States
    from spark_jobs.engine.deltas.strategies import Adaptive, FullMerge, Strategy, TieredMerge, TimeBoundary
    from spark_jobs.engine.deltas.tables import Keys, one_chunk, states_table
    from spark_jobs.engine.deltas.texts import lists_of
    from spark_jobs.engine.deltas.traffic import Traffic, entity_class
    from spark_jobs.engine.deltas.transforms import REGISTERED
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "ALWAYS",
    "AT_ONCE",
    "LATEST",
    "NEVER",
    "NO_DELTA",
    "REGISTERED",
    "STILL_KNOWN",
    "UNMOVED",
    "Adaptive",
    "BelowHorizon",
    "BelowSince",
    "ChainVersion",
    "CompactionPolicy",
    "Delta",
    "DeltaColumns",
    "DuplicateDeltaError",
    "EntityState",
    "Frontiers",
    "FullMerge",
    "JudgedDeltas",
    "Keys",
    "Meaning",
    "Need",
    "Op",
    "Refusal",
    "RestatedChains",
    "RowsNeededError",
    "Segments",
    "States",
    "Status",
    "Strategy",
    "TieredMerge",
    "TimeBoundary",
    "Traffic",
    "ages_from",
    "bytes_of",
    "changes_of",
    "checkpoints_of",
    "deltas_back",
    "entity_class",
    "fold_add",
    "fold_diff",
    "lists_of",
    "one_chunk",
    "pack",
    "parts_of",
    "restate_chains",
    "states_for",
    "states_table",
    "unpack",
    "versions",
]
