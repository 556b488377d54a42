"""A source's frontiers: the arrangement's state, which drops have landed, and how far runs have reached.

One row of `trace.frontiers` per change; the one with the greatest token is in force. All times are int64 microseconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import TidemarkError
from spark_jobs.kernels.arrangement import ArrangementState
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import FRONTIERS
from spark_jobs.storage.times import instant

SeqRange = tuple[int, int]

CARRIED = "frontiers"
"""Their name in `Lake.carried`."""


class StateCorrupt(TidemarkError):
    """The stored state can't be read. Facts: `source`."""

    code = "state_corrupt"


@dataclass(frozen=True, slots=True)
class SourceFrontiers:
    """What stands for one source.

    `landed`: half-open ranges of drops that were run, sorted and not adjoining. `landed_through`: the greatest
    landing whose rows are in the arrangement. `reached_us`: greatest end of any interval run, the source's start
    before the first run. `published_us`: what was published when a run moved them last; as they move between any two
    publications, their history holds that of the publications, too.
    """

    arrangement: ArrangementState
    reached_us: int
    landed: tuple[SeqRange, ...] = ()
    landed_through: int = 0
    published_us: int = 0

    @classmethod
    def start(cls, source: Source) -> SourceFrontiers:
        """Before the first run: nothing is sealed, nothing has landed."""
        return cls(ArrangementState(), source.drops.start_us)

    @property
    def seal_us(self) -> int:
        """The seal; 0 before the first run."""
        return self.arrangement.seal.time or 0

    def complete_us(self, source: Source) -> int:
        """`lo` of the first drop, counted from the source's start, that has not landed."""
        first = self.landed[0][1] if self.landed and self.landed[0][0] == 0 else 0
        return source.drops.interval(first)[0]

    def with_landed(self, drops: range) -> SourceFrontiers:
        """These drops have landed too."""
        merged: list[SeqRange] = []
        for lo, hi in sorted([*self.landed, (drops.start, drops.stop)]):
            if merged and lo <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
            else:
                merged.append((lo, hi))
        return replace(self, landed=tuple(merged))

    def has_landed(self, drops: range) -> bool:
        """Whether all of these drops have landed before."""
        return any(lo <= drops.start and drops.stop <= hi for lo, hi in self.landed)

    def to_json(self) -> str:
        """One line of JSON; `from_json` gives an equal value."""
        fields = {
            "arrangement": self.arrangement.to_json(),
            "reached_us": self.reached_us,
            "landed": [list(r) for r in self.landed],
            "landed_through": self.landed_through,
            "published_us": self.published_us,
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SourceFrontiers:
        """Read what `to_json` gave."""
        fields: dict[str, Any] = json.loads(text)
        landed = tuple((lo, hi) for lo, hi in fields["landed"])
        return cls(
            ArrangementState.from_json(fields["arrangement"]),
            fields["reached_us"],
            landed,
            fields["landed_through"],
            fields["published_us"],
        )


def load(lake: Lake, source: Source) -> SourceFrontiers:
    """The frontiers in force; those before the first run if there are none.

    Raises:
        StateCorrupt: the newest row can't be read.
    """
    if lake.carried is None:
        return _read(lake, source)
    if CARRIED not in lake.carried:
        lake.carried[CARRIED] = _read(lake, source).to_json()
    return SourceFrontiers.from_json(lake.carried[CARRIED])


def _read(lake: Lake, source: Source) -> SourceFrontiers:
    rows = lake.read(FRONTIERS).where(F.col("source") == source.name).orderBy(F.col("token").desc()).limit(1).collect()
    if not rows:
        return SourceFrontiers.start(source)
    try:
        return SourceFrontiers.from_json(rows[0].state)
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorrupt(
            expected=f"the state of {source.name} as JSON in trace.frontiers",
            found=f"{type(error).__name__}: {error}",
            consequence="nothing was run",
            next_step="run `tidemark doctor`; restore the row from a backup",
            source=source.name,
        ) from error


@dataclass(frozen=True, slots=True)
class Move:
    """One change of the frontiers: under which token, from what to what."""

    token: int
    before: SourceFrontiers
    after: SourceFrontiers


def moves_since(lake: Lake, source: Source, token: int) -> list[Move]:
    """The changes under tokens greater than `token`, oldest first."""
    of_source = lake.read(FRONTIERS).where(F.col("source") == source.name)
    rows = of_source.orderBy(F.col("token").desc()).select("token", "state").collect()
    newer = [row for row in rows if row.token > token]
    states = [SourceFrontiers.from_json(row.state) for row in rows[: len(newer) + 1]]
    states += [SourceFrontiers.start(source)] * (len(newer) + 1 - len(states))
    return [Move(row.token, states[i + 1], states[i]) for i, row in enumerate(newer)][::-1]


def commit(lake: Lake, source: Source, fence: Fence, run_id: str, frontiers: SourceFrontiers) -> None:
    """Make `frontiers` the ones in force: the one small commit that makes batches written before it count."""
    state = frontiers.arrangement
    row = {
        "source": source.name,
        "token": fence.token,
        "run_id": run_id,
        "seal": instant(frontiers.seal_us),
        "trace_upper": instant(state.trace_upper.time or 0),
        "since": instant(state.since.time or 0),
        "reached": instant(frontiers.reached_us),
        "complete": instant(frontiers.complete_us(source)),
        "published": instant(frontiers.published_us),
        "state": frontiers.to_json(),
    }
    lake.append(FRONTIERS, lake.frame(FRONTIERS, [row]), fence)
    if lake.carried is not None:
        lake.carried[CARRIED] = frontiers.to_json()
