"""How long a run will take, from how long past ones took."""

from __future__ import annotations

from collections.abc import Sequence

KEPT_RUNS = 32
"""Past runs that an estimate goes by: enough to see both empty and full days, few enough to follow the machine."""


def estimate_seconds(past: Sequence[tuple[int, float]], rows: int) -> float | None:
    """Seconds for a run that lands `rows` rows, from (rows, seconds) of past ones; None without any.

    The straight line nearest to them (least squares), never falling with more rows and never below the fastest run.
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
