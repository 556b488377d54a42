"""The limits of the batcher and the store, each with its unit and the reason for its default.

Limits are inclusive: a chunk *at* a limit is within it. Bytes are the sum of the rows' own sizes, without overhead.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from spark_jobs.engine.chunks import checks
from spark_jobs.errors import ParameterError


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The limits by which the store splits an inserted chunk, or merges it with a neighbour.

    For splitting, a limit of 0 is off. For merging on write, no chunk is within a limit of 0. So a store with
    `StoreConfig.off()` neither splits nor merges.
    """

    max_bytes: int = 12 * 8 * 4096
    """384 KiB: `max_rows` rows of twelve 8-byte columns, so that on plain numeric data both limits bite together."""

    max_rows: int = 4096
    """With so many rows, the fixed costs of a chunk are small: more rows would save less than 1 % of a 12-column chunk,
    while every merge on write copies up to this many rows."""

    max_rows_if_unsorted: int = 1024
    """An unsorted chunk is scanned, not searched: at 1,024 rows the scan costs about as much as the index lookup
    before it (some microseconds, see tests/benchmarks/engine/chunks.py)."""

    recheck_merged: bool = False
    """Refuse a merge whose *result* would have to be split. The reference checks the candidate alone, so two sorted
    chunks may become an unsorted one above `max_rows_if_unsorted`. Off by default, for the same answers as the
    reference. Compaction needs it, so that a second run changes nothing."""

    def __post_init__(self) -> None:
        """Refuse limits that are no whole number of 0 or more, and switches that are neither on nor off."""
        _check(self)

    @classmethod
    def off(cls) -> StoreConfig:
        """The limits that neither split nor merge: every inserted chunk stays as it is."""
        return cls(max_bytes=0, max_rows=0, max_rows_if_unsorted=0)

    def row_limit(self, is_sorted: bool) -> int:
        """The greatest number of rows of a sorted, or unsorted, chunk."""
        return self.max_rows if is_sorted else self.max_rows_if_unsorted

    def within(self, rows: int, size_bytes: int, is_sorted: bool) -> bool:
        """True if a chunk of this shape is within the limits of merging (a limit of 0: no chunk fits)."""
        return size_bytes <= self.max_bytes and rows <= self.row_limit(is_sorted)


@dataclass(frozen=True, slots=True)
class BatcherConfig:
    """The limits by which a batcher flushes the pending rows of an entity and cuts them into chunks."""

    flush_num_rows: int | None = None
    """Flush an entity at this many pending rows; None = no limit, 0 = at every row. No limit by default: a drop is
    finite and ends with a flush of all entities."""

    flush_num_bytes: int | None = None
    """Flush an entity at this many pending bytes; None = no limit, 0 = at every row."""

    max_rows_if_unsorted: int = 256
    """A piece that is unsorted on some timeline and has this many rows or more gets no further row."""

    split_before_unsorting: bool = False
    """Cut *before* the row that would unsort a piece of `max_rows_if_unsorted` rows or more. Without it (as in the
    reference), a sorted piece grows without limit, and the row that breaks its order is still added to it."""

    keep_sparse_rows: bool = False
    """Keep rows together that only lack a component, and keep rows without any value. Without it (as in the reference),
    rows are grouped by the datatypes of their non-null components, and a row without values is left out."""

    def __post_init__(self) -> None:
        """Refuse limits that are no whole number of 0 or more, and switches that are neither on nor off."""
        _check(self)


def _check(config: StoreConfig | BatcherConfig) -> None:
    for setting in fields(config):
        value = getattr(config, setting.name)
        if isinstance(setting.default, bool):
            checks.check_flag(value, setting.name)
        elif value is not None or setting.default is not None:
            limit = checks.whole_number(value, setting.name)
            if limit < 0:
                raise ParameterError(
                    expected=f"{setting.name} of 0 or more", found=str(limit), next_step="use 0 to switch a limit off"
                )
