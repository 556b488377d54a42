"""Rows that came and went, added up per file: the number of rows left, and the sum of their hashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.columns.plain import Ints
from spark_jobs.engine.hashes.identities import Hashes
from spark_jobs.engine.hashes.rows import row_hashes


@dataclass
class Balance:
    """Per file, the number of rows come less gone, and the sum of the hashes of the rows left.

    The last element of each array is for rows of no file. Equal sums mean equal rows in any order; the chance of an
    error is 1 in 10^19.
    """

    rows: Ints
    sums: Hashes

    @classmethod
    def of_nothing(cls, n_files: int) -> Self:
        """A balance of zero for `n_files` files."""
        return cls(np.zeros(n_files + 1, np.int64), np.zeros(n_files + 1, np.uint64))

    def add(self, rows: pa.Table, files: npt.NDArray[np.int64], diffs: Ints) -> None:
        """Add `rows`: each belongs to the file with its index in `files` (-1: no file) and counts `diffs` times."""
        if rows.num_rows == 0:
            return
        np.add.at(self.rows, files, diffs)
        np.add.at(self.sums, files, row_hashes(rows) * diffs.astype(np.uint64))

    def differs(self, other: Balance) -> npt.NDArray[np.bool_]:
        """Flags of the files whose number of rows or sum of hashes differs between the two balances."""
        return (self.rows != other.rows) | (self.sums != other.sums)
