"""Refusals of the chunk store: each leaves the store, the batcher and the given chunks as they were."""

from __future__ import annotations

from spark_jobs.errors import TidemarkError


class ChunkError(TidemarkError):
    """A chunk, or a pair of chunks, breaks a rule of the model."""

    code = "chunk"


class UnsortedRows(ChunkError):
    """The row ids of an inserted chunk do not ascend."""

    code = "unsorted_rows"


class DuplicateRow(ChunkError):
    """A row has the id (fact `row`) of a row that waits in the batcher already."""

    code = "duplicate_row"


class MixedTimelines(ChunkError):
    """Rows of one chunk have different sets of timelines."""

    code = "mixed_timelines"


class MixedDatatypes(ChunkError):
    """The non-null cells of one component (fact `component`) have more than one datatype."""

    code = "mixed_datatypes"


class DifferentEntity(ChunkError):
    """Two chunks of different entities can't become one."""

    code = "different_entity"


class DifferentTimelines(ChunkError):
    """Two chunks with different sets of timelines can't become one."""

    code = "different_timelines"


class DifferentDatatypes(ChunkError):
    """Two chunks that share a component of different datatypes can't become one."""

    code = "different_datatypes"
