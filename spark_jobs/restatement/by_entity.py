"""Two steps that states and chains share: rows are dealt out by entity, and corrections are stamped with their
source."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_jobs.engine.hashes import hashes
from spark_jobs.exchange import Block
from spark_jobs.sources import Source


def dealt(label: str, rows: pa.Table, n_tasks: int) -> Iterator[Block]:
    """Yield the rows as blocks, one per task; a row is in the task that the hash of its entity chooses."""
    tasks = hashes([rows["entity"]]) % np.uint64(n_tasks)
    for task in np.unique(tasks).tolist():
        yield Block(task, label, rows.filter(pa.array(tasks == task)) if n_tasks > 1 else rows)


def stamp(corrections: pa.Table, source: Source, token: int) -> pa.Table:
    """Corrections with their source and the token of the attempt that writes them."""
    for name, value in {"source": pa.scalar(source.name), "token": pa.scalar(token, pa.int64())}.items():
        corrections = corrections.append_column(name, pa.repeat(value, corrections.num_rows))
    return corrections
