"""Trace: a collection's history as an arrangement, definite to read and bounded to keep.

`Arrangement` is the collection, `ArrowPlane` its data in memory; `plane.DataPlane` and `journal.StateJournal` are
what other places for data and state implement. On Delta they are `delta_plane.DeltaPlane` and
`records_journal.RecordsJournal`, modules of their own: importing this package imports no Spark. A source of the
pipeline has `source_plane.SourcePlane` and `source_journal.SourceJournal`, which its runs advance and maintain it by.
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
