"""The changes of a source's windows since its marts were written, and how many rows the windows have.

Both are read from the histories' logs and files, without Spark.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import definitions
from spark_jobs.restatement.touched import instant
from spark_jobs.sources import Source
from spark_jobs.storage.delta.file_summaries import logged_files
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.lake import Lake

Changes = dict[str, dict[str, list[int | None]]]
"""By the history's qualified name and the publication that a mart reflects (microseconds, as text): the first and the
last start of the windows that changed since, in microseconds; None for both if no window did."""


def changes_since(lake: Lake, source: Source, publications: Collection[int]) -> Changes:
    """The changes in each history of the source's windows since each of the `publications` (microseconds).

    Rows that no publication shows yet count as well.
    """
    return {
        table.qualified: {str(known_us): _bounds(lake, table, known_us) for known_us in publications}
        for table in _histories(source)
    }


def rows_of_windows(lake: Lake, source: Source) -> int:
    """The number of rows in the histories of the source's windows, by the counts in the tables' logs."""
    return sum(
        file.rows for table in _histories(source) for file in logged_files(lake.folder.handle(table), "window_start")
    )


def _histories(source: Source) -> list[Table]:
    return [definition.table() for definition in definitions(source)]


def _bounds(lake: Lake, table: Table, known_us: int) -> list[int | None]:
    since = instant(known_us)
    changed = (pc.field("known_from") >= since) | (pc.field("known_to") >= since)
    starts = [rows["window_start"].cast(pa.int64()) for rows in lake.stored(table, ["window_start"], changed).tables()]
    if not starts:
        return [None, None]
    bounds = [pc.min_max(part).as_py() for part in starts]
    return [min(each["min"] for each in bounds), max(each["max"] for each in bounds)]
