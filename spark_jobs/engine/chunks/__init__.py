"""Dense chunks of one entity's rows: batching, storing, splitting, merging, compacting, collecting and querying them.

>>> from spark_jobs.engine.chunks import ChunkBatcher, ChunkStore, Row
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

Each module has one task:

    checks, rows     checks of arguments; a row
    model            chunks: dense columns with min, max and a sorted flag per timeline
    batcher          rows in, chunks out
    columns          the batcher for a whole Arrow table at once, without a Python loop over rows
    split, merge     splitting a chunk into pieces; merging a new chunk with a neighbour
    query            queries of a single chunk: binary search if it is sorted, otherwise a scan
    interval_index   the interval tree;  index: the catalog of a store's chunks
    write, reads, summary   changes, queries and listings of a store
    newest_first     latest-at over chunks that are stored elsewhere and read a few at a time
    part_reader      queries of chunks that are stored elsewhere, such as in files
    gc, compaction   choosing the chunks to drop; rewriting chunks into fewer
    store            the in-memory store

Pure: numpy, Arrow and the standard library. No clock, no randomness, no input or output.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.chunks.batcher import ChunkBatcher
    from spark_jobs.engine.chunks.columns import ChunkLayout, chunk_batches, chunk_columns, chunks_at
    from spark_jobs.engine.chunks.config import BatcherConfig, StoreConfig
    from spark_jobs.engine.chunks.gc import GcOptions
    from spark_jobs.engine.chunks.merging import chunk_rows, due_runs, layers, not_taken_back
    from spark_jobs.engine.chunks.model import Chunk, ComponentColumn, TimeColumn
    from spark_jobs.engine.chunks.part_reader import PartReader, check_query_names
    from spark_jobs.engine.chunks.reads import Latest, RangeAnswer
    from spark_jobs.engine.chunks.rows import Row
    from spark_jobs.engine.chunks.store import ChunkStore, InsertReport
    from spark_jobs.engine.chunks.stored import StoredLayout
    from spark_jobs.engine.chunks.summary import ChunkStats, StoreStats
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "BatcherConfig",
    "Chunk",
    "ChunkBatcher",
    "ChunkLayout",
    "ChunkStats",
    "ChunkStore",
    "ComponentColumn",
    "GcOptions",
    "InsertReport",
    "Latest",
    "PartReader",
    "RangeAnswer",
    "Row",
    "StoreConfig",
    "StoreStats",
    "StoredLayout",
    "TimeColumn",
    "check_query_names",
    "chunk_batches",
    "chunk_columns",
    "chunk_rows",
    "chunks_at",
    "due_runs",
    "layers",
    "not_taken_back",
]
