"""Trace: a collection's history as an arrangement, definite to read and bounded to keep.

`Arrangement` is the collection, which takes all steps of a run at once; `SteppedArrangement` takes them one by one.
`ArrowPlane` has its data in memory. Other places for data and state implement `plane.DataPlane` and
`journal.StateJournal`. The runs of a source advance and maintain its trace by `source_plane.SourcePlane` and
`source_journal.SourceJournal`, in modules of their own: importing this package imports no Spark.
"""

from spark_jobs.trace.arrangement import Advanced, Arrangement, Merged
from spark_jobs.trace.journal import MemoryJournal, StateChange, StateConflict, StateJournal
from spark_jobs.trace.memory import UPDATE_SCHEMA, ArrowPlane, updates_table
from spark_jobs.trace.plane import DataPlane, Examined, Placed, Slice, SteppedPlane
from spark_jobs.trace.stepped import SteppedArrangement, UnsealedStep, seal_all

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
    "SteppedArrangement",
    "SteppedPlane",
    "UnsealedStep",
    "seal_all",
    "updates_table",
]
