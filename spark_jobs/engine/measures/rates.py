"""The rate at which rows come: by drop, of the busiest entities, and its change from drop to drop.

The change is that of the reference's rate monitor (ADR-DB-007), with the drops as its samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import pyarrow as pa

from spark_jobs.engine.columns.plain import numbers
from spark_jobs.engine.measures.drops import Key

BUSIEST = 10
"""The number of entities of a drop whose rates are kept."""
MOST_COUNTED = 1 << 16
"""The most entities of a drop that are counted while its chunks are read."""
RECENT, OLDER = 5, 10
"""The number of the last rates, and the greatest number of the rates before them, whose means are compared."""
_HOUR_US = 3_600_000_000


def hourly(rows: int, length_us: int) -> float:
    """The rate of so many rows in a time of `length_us` microseconds, in rows an hour."""
    return rows * _HOUR_US / length_us


class EntityCounts:
    """The rows of the entities of drops, come less gone, counted over chunks that are added some at a time.

    Up to `MOST_COUNTED` entities of a drop are counted exactly. Of more, those with the fewest rows so far are
    forgotten.
    """

    def __init__(self) -> None:
        self._counts: dict[Key, dict[str, int]] = {}

    def add(self, chunks: pa.Table) -> None:
        """Count the rows of a table of chunks, with the columns `landing`, `seq_no`, `entity`, `rows` and `diff`."""
        signed = {name: chunks[name] for name in ("landing", "seq_no", "entity")}
        signed["n"] = pa.array(numbers(chunks["rows"]) * numbers(chunks["diff"]))
        summed = pa.table(signed).group_by(["landing", "seq_no", "entity"]).aggregate([("n", "sum")])
        for row in summed.to_pylist():
            if row["entity"] is not None:
                of_drop = self._counts.setdefault((row["landing"], row["seq_no"]), {})
                of_drop[row["entity"]] = of_drop.get(row["entity"], 0) + row["n_sum"]
        for key, counts in self._counts.items():
            if len(counts) > MOST_COUNTED:
                self._counts[key] = busiest(counts, MOST_COUNTED // 2)

    def busiest(self, key: Key) -> dict[str, int]:
        """The `BUSIEST` entities of a drop in a landing, each with its rows, the greatest first."""
        return busiest(self._counts.get(key, {}), BUSIEST)


def busiest(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """The entities with the greatest counts, at most `most`, the greatest first; of equal counts the least name."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dict(ranked[:most])


def rate_change(rates: Sequence[float]) -> float | None:
    """The change at the last of these rates, as a share of the rate before; None for fewer than ten rates.

    It is the distance between the mean of the last `RECENT` rates and the mean of up to `OLDER` rates before them,
    divided by the latter, which counts as at least 1.
    """
    if len(rates) < RECENT + RECENT:
        return None
    recent, older = fmean(rates[-RECENT:]), fmean(rates[-RECENT - OLDER : -RECENT])
    return abs(recent - older) / max(older, 1.0)
