"""The metadata of an arrangement's batches. The data of a batch never change; the handle names it in the data plane.

```
            trace: contiguous, by time                      unsealed: by arrival
  [0]────────────[t1]──────[t2]──[t3]
   │  level 2     │ level 1 │  0  │ trace_upper <= seal      (seqno 7..8) least..greatest
   └──────────────┴─────────┴─────┘                          (seqno 8..9) least..greatest
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from spark_jobs.model import Frontier

SeqnoRange = tuple[int, int]
"""Half open `[lo, hi)` sequence numbers of the log."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as the data plane stores it: its handle, its number of updates, its size and its tight time bounds.

    `size` is in the unit of the data plane (stored bytes in production), so only sizes from the same plane can be
    compared. `least` and `greatest` are 0 for a batch without updates. `checksum` is a text that the data plane works
    out of the stored updates, and which stays the same as long as they do. It is empty if the plane has none.
    """

    handle: str
    n_updates: int
    size: int
    least: int
    greatest: int
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class UnsealedBatch:
    """One append: its range of sequence numbers, and the least and the greatest time of its updates, both inclusive.

    `checksum` is that of `StoredBatch`.
    """

    handle: str
    seqno: SeqnoRange
    least: int
    greatest: int
    n_updates: int
    size: int
    checksum: str = ""

    @classmethod
    def of(cls, stored: StoredBatch, seqno: SeqnoRange) -> UnsealedBatch:
        """The batch that covers `seqno` and whose updates are `stored`."""
        times = stored.least, stored.greatest
        return cls(stored.handle, seqno, *times, stored.n_updates, stored.size, stored.checksum)

    def to_json(self) -> dict[str, Any]:
        """The batch as plain JSON values, from which `from_json` makes an equal batch."""
        return asdict(self) | {"seqno": list(self.seqno)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> UnsealedBatch:
        """Read a batch from the values that `to_json` returned."""
        lo, hi = fields["seqno"]
        return cls(**{**fields, "seqno": (lo, hi)})


@dataclass(frozen=True, slots=True)
class Description:
    """The interval `[lower, upper)` that a trace batch covers; only times at or beyond `since` are told apart."""

    lower: Frontier
    upper: Frontier
    since: Frontier


@dataclass(frozen=True, slots=True)
class TraceBatch:
    """All updates of `[lower, upper)`, consolidated and sorted by (data, time), at a compaction level.

    `least` and `greatest` are the tight bounds of its times, 0 for a batch without updates. `checksum` is that of
    `StoredBatch`.
    """

    handle: str
    description: Description
    level: int
    n_updates: int
    size: int
    least: int = 0
    greatest: int = 0
    checksum: str = ""

    @property
    def lower(self) -> Frontier:
        """Inclusive start of the interval."""
        return self.description.lower

    @property
    def upper(self) -> Frontier:
        """Exclusive end of the interval."""
        return self.description.upper

    @property
    def since(self) -> Frontier:
        """The frontier to which times of this batch were forwarded."""
        return self.description.since

    @classmethod
    def of(cls, stored: StoredBatch, description: Description, level: int) -> TraceBatch:
        """The batch that covers `description` and whose updates are `stored`."""
        facts = stored.n_updates, stored.size, stored.least, stored.greatest, stored.checksum
        return cls(stored.handle, description, level, *facts)

    def to_json(self) -> dict[str, Any]:
        """The batch as plain JSON values, from which `from_json` makes an equal batch."""
        return {
            "handle": self.handle,
            "lower": self.lower.to_json(),
            "upper": self.upper.to_json(),
            "since": self.since.to_json(),
            "level": self.level,
            "n_updates": self.n_updates,
            "size": self.size,
            "least": self.least,
            "greatest": self.greatest,
            "checksum": self.checksum,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> TraceBatch:
        """Read a batch from the values that `to_json` returned. Time bounds that an old state lacks are read as 0, a
        checksum as empty."""
        lower, upper, since = (Frontier.from_json(fields[name]) for name in ("lower", "upper", "since"))
        given = {name: fields.get(name, 0) for name in ("level", "n_updates", "size", "least", "greatest")}
        return cls(fields["handle"], Description(lower, upper, since), **given, checksum=fields.get("checksum", ""))


@dataclass(frozen=True, slots=True)
class ReadLease:
    """A reader's hold on a time: since may not pass `at` until the lease expires, at `expires_at`.

    `expires_at` is a time of the caller's clock. The state machine has no clock: functions that look at leases take
    `now` as a parameter.
    """

    name: str
    at: int
    expires_at: int
