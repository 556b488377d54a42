"""The estimate of a run's duration from the durations of past runs."""

from __future__ import annotations

from collections.abc import Sequence

KEPT_RUNS = 32
"""The most past runs for an estimate: enough to have both empty and full days, few enough to follow the machine."""


def estimate_seconds(past: Sequence[tuple[int, float]], rows: int) -> float | None:
    """The seconds of a run that lands `rows` rows, from (rows, seconds) of past runs; None without past runs.

    The value on the straight line nearest to the past runs (least squares). It never falls with more rows, and is never
    below the fastest run.
    """
    if not past:
        return None
    mean_rows = sum(n for n, _ in past) / len(past)
    mean_seconds = sum(seconds for _, seconds in past) / len(past)
    spread = sum((n - mean_rows) ** 2 for n, _ in past)
    together = sum((n - mean_rows) * (seconds - mean_seconds) for n, seconds in past)
    per_row = max(together / spread, 0.0) if spread else 0.0
    fastest = min(seconds for _, seconds in past)
    return round(max(mean_seconds + per_row * (rows - mean_rows), fastest), 1)
