"""The readers: blocks of bytes in, batches of typed rows and rejects out, in the file's order and in bounded memory.

Ranges of rejects (`rejects.RejectCounter`) come last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_jobs.kernels.records.cells import Cells, check_lines, csv_cells, ndjson_cells
from spark_jobs.kernels.records.rejects import RejectCounter
from spark_jobs.kernels.records.rows import rows_of_cells
from spark_jobs.kernels.records.spec import RecordSpec


def read_csv(blocks: Iterable[bytes], spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    """The records of a CSV file (RFC 4180 with a header, UTF-8, see `tokens`) as batches of `spec.schema()`.

    Columns may stand in any order; one that the header lacks is null in every row. Raises FileRejectedError with the
    rule `empty_file`, `bad_header`, `duplicate_header` or `too_many_lines`; then nothing of the file counts.
    """
    return _rows(csv_cells(blocks, spec), spec)


def read_ndjson(blocks: Iterable[bytes], spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    """The JSON objects of a file, one a line, as batches of `spec.schema()`. Raises FileRejectedError."""
    return _rows(ndjson_cells(blocks, spec), spec)


def _rows(batches: Iterable[Cells], spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    counter = RejectCounter(spec)
    for cells in batches:
        if len(cells):
            check_lines(int(cells.lines[-1]), spec)
        yield rows_of_cells(cells, spec, counter)
    yield from counter.ranges()
