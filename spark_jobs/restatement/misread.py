"""Publications of earlier versions, which left out rows that this version reads; a run publishes all of them anew."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pyarrow import ArrowInvalid

from spark_jobs.definitions.definition import definitions
from spark_jobs.definitions.versions import is_read_as_now
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.tables import updates
from spark_jobs.storage.lakes.lake import TableReader

if TYPE_CHECKING:
    from pyarrow.dataset import ParquetFileFragment
    from pyarrow.parquet import FileMetaData

_LEAST_US, _GREATEST_US = -30_610_224_000_000_000, 253_370_764_799_999_999
"""The first microsecond of year 1000 and the last of year 9998: times beyond them had no bounds in the log."""


def is_misread(lake: TableReader, source: Source, published: Publication) -> bool:
    """True if an earlier version made the publication and may have left out updates of the source.

    Such updates are in files with times before year 1000 or of year 9999 (decision 0245). Or they are rows without a
    value in a window's key (decision 0246).
    """
    if published.published_us == 0 or is_read_as_now(published):
        return False
    times = {"event_time", *(f"t_{timeline}" for timeline in source.timelines)}
    keys = {f"c_{key}" for definition in definitions(source) for key in definition.key}
    files = lake.stored(updates(source), []).fragments
    return any(_has_left_out(footer, times, keys) for footer in map(_footer, files) if footer is not None)


def _footer(file: ParquetFileFragment) -> FileMetaData | None:
    """The footer of a file; None if the file is damaged or lost. The error is raised where its rows are read."""
    try:
        return file.metadata
    except (ArrowInvalid, OSError):
        return None


def _has_left_out(of_file: FileMetaData, times: Collection[str], keys: Collection[str]) -> bool:
    """True if a file may have such rows, by the statistics in its footer."""
    for place in range(of_file.num_columns):
        name = of_file.schema.column(place).path
        if name not in times and name not in keys:
            continue
        for group in range(of_file.num_row_groups):
            column = of_file.row_group(group).column(place)
            statistics = column.statistics
            if statistics is None or (name in keys and statistics.null_count > 0):
                return True
            if (
                name in times
                and statistics.has_min_max
                and not _LEAST_US <= statistics.min_raw <= statistics.max_raw <= _GREATEST_US
            ):
                return True
    return False
