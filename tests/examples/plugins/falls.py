"""A trigger of early results: a value that is less than the value before it in its window."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.windows import EarlyTrigger, TriggerRows
from spark_jobs.plugins import Number, trigger


@trigger("falls(column, by)", operands={"int"}, numbers=[Number("by", 0, 1_000_000, whole=True)])
@dataclass(frozen=True)
class Falls(EarlyTrigger):
    """Fires after a row whose value is at least `by` less than the one before."""

    column: str
    by: int

    def fires(self, rows: TriggerRows) -> npt.NDArray[np.bool_]:
        """The first row of a window has no row before it."""
        values = rows.column(self.column).fill_null(0).to_numpy()
        fires = np.zeros(values.size, np.bool_)
        same_window = rows.windows[1:] == rows.windows[:-1]
        fires[1:] = same_window & (values[:-1] - values[1:] >= self.by)
        return fires
