"""Chunks in Delta tables: a store of its own, and the landed rows of a source of the pipeline.

`DeltaChunkStore` keeps the chunks of `engine.chunks` in a Delta table and gives the same answers. `SourceChunks`
queries the landed rows of a source.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.spark.chunks.delta import DeltaChunkStore
    from spark_jobs.engine.spark.chunks.source_chunks import (
        NothingLanded,
        SourceChunks,
        UnknownComponent,
        UnknownTimeline,
    )
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = ["DeltaChunkStore", "NothingLanded", "SourceChunks", "UnknownComponent", "UnknownTimeline"]
