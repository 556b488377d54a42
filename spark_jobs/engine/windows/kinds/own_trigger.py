"""Triggers of a team's own: Python code that says after which rows a window emits an early result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.windows.rows import SortedRows
from spark_jobs.errors import ParameterError

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TriggerRows:
    """All rows of some windows, window after window, each window's in the order in which they count. A row that is in
    several of the windows occurs in each.

    Args:
        rows: the rows, from which columns are taken.
        taken: per row here, its number in `rows`.
        windows: per row here, the number of its window: 0, 0, 0, 1, 1, …
    """

    rows: SortedRows
    taken: Ints
    windows: Ints

    def column(self, name: str) -> pa.Array:
        """The values of a column that the trigger was made with."""
        return self.rows.column(name, self.taken)

    @property
    def times(self) -> Ints:
        """The times of the rows, in ticks: microseconds in a source."""
        return self.rows.times[self.taken]


class EarlyTrigger(ABC):
    """A trigger of a team's own. It must decide about each window by the rows of that window alone.

    >>> class Alarm(EarlyTrigger):
    ...     def __init__(self, column): self.column = column
    ...     def fires(self, rows): return pc.equal(rows.column(self.column), "alarm")
    """

    @abstractmethod
    def fires(self, rows: TriggerRows) -> Any:
        """Booleans, one a row, in an array of numpy or Arrow: true if its window emits a result after the row. Null is
        false."""


@dataclass(frozen=True)
class OwnTrigger:
    """A trigger of a team's own under its name, which its emissions have as their reason."""

    reason: str
    trigger: EarlyTrigger

    def flags(self, rows: TriggerRows) -> Flags:
        """Flags of the rows after which the trigger fires.

        Raises:
            ParameterError: the trigger returns anything but one boolean a row.
        """
        fires = self.trigger.fires(rows)
        if isinstance(fires, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(fires.type):
            fires = pc.fill_null(fires, False).to_numpy(zero_copy_only=False)
        if not isinstance(fires, np.ndarray) or fires.dtype != np.bool_ or fires.shape != rows.taken.shape:
            raise ParameterError(
                expected=f"an array of {rows.taken.size} booleans from the trigger {self.reason}, one a row",
                found=f"{type(fires).__name__} {getattr(fires, 'dtype', getattr(fires, 'type', ''))} of "
                f"{len(fires) if hasattr(fires, '__len__') else 'no'} values",
                consequence="no early result was computed",
                next_step="let `fires` return one boolean for each row that it is given",
                parameter="triggers",
                value=self.reason,
            )
        return fires
