"""`DeltaChunkStore`: the chunks of `engine.chunks` in a Delta table, with the same answers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.spark.chunks.delta import DeltaChunkStore
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = ["DeltaChunkStore"]
