"""A guessed type of a column, and the reading of its cells with a type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_jobs.engine.records import Cell, ColumnSpec, read_column


@dataclass(frozen=True, slots=True)
class Kind:
    """A guessed type: the type in a source file, the format of a time, and another format that fits as well.

    `evidence`: the reasons for the type, as a sentence with numbers of values; empty where the values have only one
    reading. For a column of text, why it is no other type.
    """

    type: str
    format: str = "iso"
    doubt: str = ""
    evidence: str = ""

    @property
    def is_time(self) -> bool:
        """True if the type is a timestamp or a date."""
        return self.type in ("timestamp", "date")


def read_by(spec: ColumnSpec, cells: Sequence[Cell]) -> np.ndarray:
    """Flags: true for each cell that the reader reads with `spec`. Cells without a value are false."""
    texts = [text.encode("utf-8", "replace") for _, text in cells]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8)
    data.setflags(write=False)
    kinds = np.array([kind for kind, _ in cells], np.uint8)
    good = np.ones(len(cells), bool)
    values = read_column(spec, data, ends[:-1].copy(), ends[1:].copy(), kinds, good)
    return values.present & (values.rules == 0)
