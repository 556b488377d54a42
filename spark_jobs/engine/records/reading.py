"""The readers of CSV and JSON: from blocks of bytes to batches of typed rows and rejects, in the order of the file and
in bounded memory.

Ranges of rejects (`rejects.RejectCounter`) come last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_jobs.engine.records.arrays import array_lines
from spark_jobs.engine.records.cells import RecordCells, csv_cells, ndjson_cells
from spark_jobs.engine.records.headers import check_lines
from spark_jobs.engine.records.rejects import RejectCounter
from spark_jobs.engine.records.rows import rows_of_cells
from spark_jobs.engine.records.spec import RecordSpec


def read_csv(blocks: Iterable[bytes], spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    """The records of a CSV file (RFC 4180 with a header, UTF-8, see `tokens`) as batches of `spec.schema()`.

    Columns may be in any order; an optional column that the header lacks is null in every row. Raises FileRejectedError
    with the rule `empty_file`, `bad_header`, `duplicate_header`, `wrong_delimiter`, `columns_missing` or
    `too_many_lines`; then no row of the file counts.
    """
    return _rows(csv_cells(blocks, spec), spec)


def read_ndjson(blocks: Iterable[bytes], spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    """The JSON objects of a file, one a line, as batches of `spec.schema()`.

    Raises FileRejectedError with the rule `empty_file`, `too_many_lines` or, after all batches, `columns_missing`: a
    column that is not optional is in no object. Then no row of the file counts.
    """
    return _rows(ndjson_cells(blocks, spec), spec)


def read_json(blocks: Iterable[bytes], spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    """The objects of a JSON array as batches of `spec.schema()`; `line` is the number of an object, from 1.

    Raises FileRejectedError as `read_ndjson` does, and with the rules `unreadable_file` and `truncated_file`.
    """
    return read_ndjson(array_lines(blocks, spec.max_record_bytes), spec)


def _rows(batches: Iterable[RecordCells], spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    counter = RejectCounter(spec)
    for cells in batches:
        if len(cells):
            check_lines(int(cells.lines[-1]), spec)
        yield rows_of_cells(cells, spec, counter)
    yield from counter.ranges()
