"""A column of lists as numpy arrays: the elements of all lists one after another, and the length of each list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns.plain import Flags, Ints

_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class Lists:
    """Lists of whole numbers or times.

    `values` has 0 for a null element, and `given` is False there. A null list has no elements."""

    present: Flags
    lengths: Ints
    values: Ints
    given: Flags

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Lists:
        """The lists of a column of lists of whole numbers or times."""
        lists = column.combine_chunks()
        elements = pc.list_flatten(lists)
        given = pc.is_valid(elements).to_numpy(zero_copy_only=False)
        values = pc.fill_null(elements.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return cls(lists.is_valid().to_numpy(zero_copy_only=False), lengths(column), values, given)

    @property
    def owners(self) -> Ints:
        """Per element, the index of its list."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def count(self, of_elements: Flags) -> Ints:
        """Per list, the number of its elements that are marked."""
        ends = np.cumsum(self.lengths)
        before = np.concatenate(([0], np.cumsum(of_elements)))
        return before[ends] - before[ends - self.lengths]

    def bounds(self) -> tuple[Ints, Ints, Flags]:
        """Per list, its least value, its greatest value, and True if it has any; nulls are left out."""
        any_given = self.count(self.given) > 0
        least, greatest = np.zeros(len(any_given), np.int64), np.zeros(len(any_given), np.int64)
        filled = self.lengths > 0
        if filled.any():
            starts = (np.cumsum(self.lengths) - self.lengths)[filled]
            least[filled] = np.minimum.reduceat(np.where(self.given, self.values, _GREATEST), starts)
            greatest[filled] = np.maximum.reduceat(np.where(self.given, self.values, _LEAST), starts)
        return least, greatest, any_given

    def falls(self, *, or_stays: bool = False) -> Flags:
        """Per list, True if a value is less than the one before it (`or_stays`: or equal to it), nulls left out."""
        values, owners = self.values[self.given], self.owners[self.given]
        lower = values[1:] <= values[:-1] if or_stays else values[1:] < values[:-1]
        flags = np.zeros(len(self.lengths), np.bool_)
        flags[owners[1:][lower & (owners[1:] == owners[:-1])]] = True
        return flags


def lengths(column: pa.ChunkedArray) -> Ints:
    """Per list, the number of its elements; 0 for null."""
    return pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64()).combine_chunks().to_numpy()
