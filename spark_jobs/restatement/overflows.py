"""Results that do not fit into their types: null in the windows and states that are published, and listed here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_jobs.engine.windows import SLICE_COLUMN
from spark_jobs.storage.descriptions.column_types import INSTANT

MOST_LISTED = 20
"""The most results that are listed; all of them are counted."""


def plain_name(name: str) -> str:
    """The name of a worker's column in the published table: without the prefix `k_` or `a_`."""
    return name[2:] if name[:2] in ("k_", "a_") else name


@dataclass
class Overflows:
    """The number of results that did not fit, and the first of them: each has the key and `window_start` of its
    window, `column`, and the approximate result in `about`."""

    count: int = 0
    listed: list[dict[str, Any]] = field(default_factory=list)

    def take(self, column: str, windows: pa.Table) -> None:
        """Add the windows whose result in `column` does not fit; `windows` has the columns of a worker."""
        self.count += windows.num_rows
        first = windows.slice(0, max(MOST_LISTED - len(self.listed), 0))
        starts = first["window_start"].cast(INSTANT).to_pylist()
        rows = first.drop_columns([c for c in (SLICE_COLUMN, "window_start") if c in first.column_names]).to_pylist()
        for start, row in zip(starts, rows, strict=True):
            about = row.pop("about")
            key = {plain_name(name): value for name, value in row.items()}
            self.listed.append({**key, "window_start": start, "column": plain_name(column), "about": about})

    def add(self, other: Overflows) -> None:
        """Add the overflows of another worker."""
        self.count += other.count
        self.listed = [*self.listed, *other.listed][:MOST_LISTED]
