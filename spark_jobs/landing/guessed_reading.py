"""The reading of all rows of sample files with a guessed source: the rows that it reads, and those that it rejects."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.hashes import hashes_of, row_hashes
from spark_jobs.engine.records import COLUMN_PREFIX
from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.worker import read_file
from spark_jobs.sources import Source
from spark_jobs.sources.quantities import DAY_US, instant_at

LEAST_SHARE = 0.01
"""The least share of a file's rows that a day must have to count as its last one: a few rows with a wrong year don't
decide it."""
MOST_REJECTS = 20
"""The most rejected records that are listed one by one."""
_OF_COLUMN = re.compile(r"column `([^`]*)`: ")


@dataclass(slots=True)
class Read:
    """The result of reading all files: the number of rows, and that of rejected records by reason and by rule; the
    first of these records; the number of records that each column rejects; and the first event time."""

    rows: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    rules: dict[str, int] = field(default_factory=dict)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, int] = field(default_factory=dict)
    first: datetime | None = None
    last_days_us: list[int | None] = field(default_factory=list)
    _hashes: dict[str, list[np.ndarray]] = field(default_factory=lambda: {"delta_id": [], "row": []})
    _days: Counter[int] = field(default_factory=Counter)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch of a file's records."""
        self.rows += batch["rule"].null_count
        for reject in batch.filter(pc.is_valid(batch["reason"])).to_pylist():
            records = reject["records"] or 1
            self.rules[reject["rule"]] = self.rules.get(reject["rule"], 0) + records
            self.rejected[reject["reason"]] = self.rejected.get(reject["reason"], 0) + records
            if match := _OF_COLUMN.match(reject["reason"]):
                self.columns[match[1]] = self.columns.get(match[1], 0) + records
            if len(self.rejects) < MOST_REJECTS:
                self.rejects.append({key: reject[key] for key in ("file", "line", "rule", "reason")})
        if batch["delta_id"].null_count < batch.num_rows:
            self._hash(batch.filter(pc.is_null(batch["rule"])))
        times = batch["event_time"].drop_null().cast(pa.int64()).to_numpy()
        days, rows = np.unique(times // DAY_US, return_counts=True)
        self._days.update(dict(zip(days.tolist(), rows.tolist(), strict=True)))
        least = pc.min(batch["event_time"]).cast(pa.int64()).as_py()
        if least is not None:
            first = instant_at(least)
            self.first = first if self.first is None else min(self.first, first)

    def _hash(self, batch: pa.RecordBatch) -> None:
        """Keep hashes of the rows, and of their ids."""
        if batch.num_rows:
            columns = [n for n in batch.schema.names if n.startswith(COLUMN_PREFIX)]
            self._hashes["row"].append(row_hashes(pa.Table.from_batches([batch]).select([*columns, "extra"])))
            self._hashes["delta_id"].append(hashes_of(batch["delta_id"]))

    @property
    def repeated_ids(self) -> int:
        """The number of rows whose `delta_id` another row has that differs from them."""
        distinct = {name: np.unique(np.concatenate(parts)).size if parts else 0 for name, parts in self._hashes.items()}
        return int(distinct["row"] - distinct["delta_id"])

    def end_file(self) -> None:
        """Conclude a file: keep the last day of its rows."""
        days, self._days = self._days, Counter()
        least = LEAST_SHARE * days.total()
        self.last_days_us.append(max((day * DAY_US for day, rows in days.items() if rows >= least), default=None))


def read_all(source: Source, files: Sequence[Path]) -> Read:
    """Read the files from end to end, batch by batch, as the source would."""
    read = Read()
    names = Counter(path.name for path in files)
    for path in files:
        # files of several folders may have one name
        label = path.name if names[path.name] == 1 else f"{path.resolve().parent.name}/{path.name}"
        with path.open("rb") as opened:
            checksum = hashlib.file_digest(opened, "sha256").hexdigest()
        status = path.stat()
        listed = LandingFile(0, label, 1, status.st_size, checksum, status.st_mtime_ns, str(path.resolve()))
        for batch in read_file(listed, source.landing.form, record_spec(source)):
            read.add(batch)
        read.end_file()
    return read
