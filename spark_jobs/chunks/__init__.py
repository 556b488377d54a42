"""Dense chunks of one entity's rows, their batcher, and a store that answers range and latest-at queries.

In memory, without Spark:

>>> from spark_jobs.chunks import ChunkBatcher, ChunkStore, Row
>>> batcher = ChunkBatcher()
>>> batcher.push("pump", Row(row_id=1, times={"day": 4}, data={"flow": 5}))
[]
>>> store = ChunkStore()
>>> for chunk in batcher.flush():
...     report = store.insert(chunk)
>>> store.latest_at("pump", "day", 9, ["flow"])
{'flow': Latest(row_id=1, time=4, value=5)}
>>> store.range_query("pump", "day", 0, 9, ["flow"]).to_pylist()
[{'row_id': 1, 'time': 4, 'flow': 5}]

`DeltaChunkStore` keeps the same chunks in a Delta table and gives the same answers. `SourceChunks` queries the landed
rows of a source of the pipeline.
"""

from spark_jobs.chunks.delta import DeltaChunkStore
from spark_jobs.chunks.source_chunks import NothingLanded, SourceChunks, UnknownComponent, UnknownTimeline
from spark_jobs.kernels.chunks.batcher import ChunkBatcher
from spark_jobs.kernels.chunks.config import BatcherConfig, StoreConfig
from spark_jobs.kernels.chunks.gc import GcOptions
from spark_jobs.kernels.chunks.model import Chunk, ComponentColumn, TimeColumn
from spark_jobs.kernels.chunks.reads import Latest, RangeAnswer
from spark_jobs.kernels.chunks.rows import Row
from spark_jobs.kernels.chunks.store import ChunkStore, InsertReport
from spark_jobs.kernels.chunks.summary import ChunkStats, StoreStats

__all__ = [
    "BatcherConfig",
    "Chunk",
    "ChunkBatcher",
    "ChunkStats",
    "ChunkStore",
    "ComponentColumn",
    "DeltaChunkStore",
    "GcOptions",
    "InsertReport",
    "Latest",
    "NothingLanded",
    "RangeAnswer",
    "Row",
    "SourceChunks",
    "StoreConfig",
    "StoreStats",
    "TimeColumn",
    "UnknownComponent",
    "UnknownTimeline",
]
