"""An aggregate of windows: the greatest common divisor of a column's values."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.engine.windows import Monoid
from spark_jobs.plugins import aggregate


@aggregate("gcd(column)", operands={"int"})
@dataclass(frozen=True)
class Divisor(Monoid):
    """Exact whatever the order of rows, as `combine` has to be."""

    column: str

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """int64."""
        return pa.int64()

    def lift(self, values: pa.Array) -> tuple[np.ndarray, ...]:
        """Each value is its own divisor."""
        return (np.abs(values.to_numpy(zero_copy_only=False)),)

    def combine(self, one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """The divisor of two."""
        return (np.gcd(one[0], other[0]),)

    def lower(self, state: tuple[np.ndarray, ...]) -> pa.Array:
        """The state is the result."""
        return pa.array(state[0])
