"""What a worker is given, as one table of rows and published windows: how tests write it down, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.spark.windows import Given
from spark_jobs.restatement.restater import Restater, WorkerReport, result_schema, row_schema, window_schema


def given_schema(definition: Definition, *, sliced: bool = False) -> pa.Schema:
    """Rows (`is_window` false) and published windows, each with nulls in the other's columns."""
    fields = [*row_schema(definition, sliced=sliced), *window_schema(definition, sliced=sliced)]
    return pa.schema([("is_window", pa.bool_()), *{field.name: field for field in fields}.values()])


def restate(worker: Restater, table: pa.Table, outcome: WorkerReport, *, rows_a_batch: int) -> pa.Table:
    """The corrections that the worker makes of the table, which comes in batches."""
    sliced = bool(worker.hot)

    def given() -> Iterator[Given]:
        for batch in table.to_batches(max_chunksize=rows_a_batch):
            part, is_window = pa.Table.from_batches([batch]), batch.column("is_window")
            windows = part.filter(is_window).select(window_schema(worker.definition, sliced=sliced).names)
            rows = part.filter(pc.invert(is_window)).select(row_schema(worker.definition, sliced=sliced).names)
            yield rows, windows if windows.num_rows else None

    schema = result_schema(worker.definition)
    return pa.concat_tables([schema.empty_table(), *worker(given(), outcome)])
