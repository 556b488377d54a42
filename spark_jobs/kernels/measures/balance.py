"""Rows that came and went, added up by the file that they are of: how many are left, and a sum of their hashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..identities import Hashes
from ..plain import Ints
from .hashing import row_hashes


@dataclass
class Balance:
    """Per file, and last of rows that are of none: rows come less gone, and the sum of the hashes of what is left.

    Equal sums mean equal rows in any order, but once in 10^19.
    """

    rows: Ints
    sums: Hashes

    @classmethod
    def of_nothing(cls, n_files: int) -> Self:
        """Of so many files."""
        return cls(np.zeros(n_files + 1, np.int64), np.zeros(n_files + 1, np.uint64))

    def add(self, rows: pa.Table, files: npt.NDArray[np.int64], diffs: Ints) -> None:
        """Add rows, each of the file with this index (-1: of none), as often as its diff says."""
        if rows.num_rows == 0:
            return
        np.add.at(self.rows, files, diffs)
        np.add.at(self.sums, files, row_hashes(rows) * diffs.astype(np.uint64))

    def differs(self, other: Balance) -> npt.NDArray[np.bool_]:
        """Which files two of them say something else of."""
        return (self.rows != other.rows) | (self.sums != other.sums)
