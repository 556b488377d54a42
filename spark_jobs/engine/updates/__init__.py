"""Updates, (data, time, diff): their consolidation, the times at which they become visible, and their refusals."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.updates.consolidation import (
        DIFF,
        TIME,
        accumulate,
        consolidate,
        data_columns,
        dense_ranks,
        forward,
    )
    from spark_jobs.engine.updates.placing import Horizon, consolidate_rows, sort_numbers, visible_times
    from spark_jobs.engine.updates.refusals import DiffOverflow, MalformedUpdates, TimeOutOfRange
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "DIFF",
    "TIME",
    "DiffOverflow",
    "Horizon",
    "MalformedUpdates",
    "TimeOutOfRange",
    "accumulate",
    "consolidate",
    "consolidate_rows",
    "data_columns",
    "dense_ranks",
    "forward",
    "sort_numbers",
    "visible_times",
]
