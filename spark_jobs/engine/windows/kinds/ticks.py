"""Ticks as columns or as SQL: a rule is written once, and numpy computes it or it is rendered as SQL for Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SqlTicks:
    """A bigint expression of SQL. `%` is the modulo by a positive number and never negative, as in numpy."""

    sql: str

    def __add__(self, other: SqlTicks | int) -> SqlTicks:
        return SqlTicks(f"({self.sql} + {_text(other)})")

    def __sub__(self, other: SqlTicks | int) -> SqlTicks:
        return SqlTicks(f"({self.sql} - {_text(other)})")

    def __mod__(self, other: int) -> SqlTicks:
        return SqlTicks(f"pmod({self.sql}, {other}L)")

    def __str__(self) -> str:
        return self.sql


def _text(ticks: SqlTicks | int) -> str:
    return ticks.sql if isinstance(ticks, SqlTicks) else f"{ticks}L"


Ticks = TypeVar("Ticks", Ints, SqlTicks)
"""Ticks as int64 arrays, or as SQL expressions."""
