"""Trace: a collection's history as an arrangement, definite to read and bounded to keep.

`Arrangement` is the collection, `ArrowPlane` its data in memory; `plane.DataPlane` and `journal.StateJournal` are
what other places for data and state implement. On Delta they are `delta_plane.DeltaPlane` and
`delta_journal.DeltaJournal`, modules of their own: importing this package imports no Spark.
"""

from spark_jobs.trace.arrangement import Arrangement, FinishedDrain, UnsealedStep, merge_batches, seal_all
from spark_jobs.trace.journal import MemoryJournal, StateChange, StateConflict, StateJournal
from spark_jobs.trace.memory import UPDATE_SCHEMA, ArrowPlane, updates_table
from spark_jobs.trace.plane import DataPlane, Examined, Slice

__all__ = [
    "UPDATE_SCHEMA",
    "Arrangement",
    "ArrowPlane",
    "DataPlane",
    "Examined",
    "FinishedDrain",
    "MemoryJournal",
    "Slice",
    "StateChange",
    "StateConflict",
    "StateJournal",
    "UnsealedStep",
    "merge_batches",
    "seal_all",
    "updates_table",
]
