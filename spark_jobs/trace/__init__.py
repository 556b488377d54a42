"""Trace: a collection's history as an arrangement, definite to read and bounded to keep.

`Arrangement` is the collection, `ArrowPlane` its data in memory. Other places for data and state implement
`plane.DataPlane` and `journal.StateJournal`. On Delta these are `delta_plane.DeltaPlane` and
`records_journal.RecordsJournal`, in modules of their own: importing this package imports no Spark. The runs of a
source advance and maintain its trace by `source_plane.SourcePlane` and `source_journal.SourceJournal`.
"""

from spark_jobs.trace.arrangement import Advanced, Arrangement, Merged, UnsealedStep, seal_all
from spark_jobs.trace.journal import MemoryJournal, StateChange, StateConflict, StateJournal
from spark_jobs.trace.memory import UPDATE_SCHEMA, ArrowPlane, updates_table
from spark_jobs.trace.plane import DataPlane, Examined, Placed, Slice

__all__ = [
    "UPDATE_SCHEMA",
    "Advanced",
    "Arrangement",
    "ArrowPlane",
    "DataPlane",
    "Examined",
    "MemoryJournal",
    "Merged",
    "Placed",
    "Slice",
    "StateChange",
    "StateConflict",
    "StateJournal",
    "UnsealedStep",
    "seal_all",
    "updates_table",
]
