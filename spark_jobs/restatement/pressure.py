"""The pressure on the memory of workers that sort rows: how much of it their rows asked for, and what was flushed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from spark_jobs.engine.spark.windows import METRICS
from spark_jobs.engine.windows import MemoryUse, pressure_level
from spark_jobs.sources import Source

WARNED = ("high", "critical", "emergency")
"""The levels of which a run warns if rows were flushed."""
_GREATEST = ("peak_bytes", "peak_percent")
"""The metrics of which the greatest of all workers counts; others are summed."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """The memory that the workers of some work used; see `MemoryUse`.

    Attributes:
        level: one of `engine.windows.LEVELS`.
        max_bytes: the memory that each worker may use.
    """

    level: str
    max_bytes: int
    rows: int
    flushed_runs: int
    flushed_bytes: int
    peak_bytes: int
    peak_percent: int

    @property
    def is_worth_a_warning(self) -> bool:
        """True if the level is high or beyond, and rows were flushed, or the rows of one window exceeded the memory."""
        return self.level in WARNED and (self.flushed_runs > 0 or self.peak_bytes > self.max_bytes)

    @classmethod
    def of(cls, source: Source, used: Mapping[str, int]) -> Pressure:
        """The pressure of workers of a source that used so much (METRICS)."""
        memory = source.memory
        share = max(used["peak_percent"] / 100, used["peak_bytes"] / memory.max_bytes)
        return cls(pressure_level(share, memory.high_water, memory.emergency), memory.max_bytes, **used)


def no_use() -> dict[str, int]:
    """The metrics before any worker reported."""
    return dict.fromkeys(METRICS, 0)


def metrics_of(use: MemoryUse) -> dict[str, int]:
    """The metrics of one worker."""
    return {name: getattr(use, name) for name in METRICS}


def add_use(total: dict[str, int], used: Mapping[str, int]) -> None:
    """Add the metrics of a worker to those of all."""
    for name, value in used.items():
        total[name] = max(total[name], value) if name in _GREATEST else total[name] + value


def as_report(pressures: Mapping[str, Pressure]) -> dict[str, dict[str, int | str]]:
    """The pressures as lines of a stage's report, by the name of the work."""
    return {name: asdict(pressure) for name, pressure in pressures.items()}
