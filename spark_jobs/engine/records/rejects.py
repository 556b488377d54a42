"""The rejects of a file that are kept: for each rule the first ones, one by one, and the rest as one range of lines.

A file can break a rule in every line, and every kept record costs a reason and its text. So a file has at most
`max_rejects + 1` rejects for each rule, whatever its length; the lines of a range can be read from the file again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_jobs.engine.records.spec import RecordSpec

Reject = tuple[str, str, str | None]
"""`(rule, reason, raw)` of a rejected record; raw is None if nothing of the record is kept."""


@dataclass
class _Range:
    line: int
    last_line: int
    records: int
    first: Reject


@dataclass
class RejectCounter:
    """Counts the rejected records of one file, batch after batch."""

    spec: RecordSpec
    _seen: Counter[int] = field(default_factory=Counter)
    _ranges: dict[int, _Range] = field(default_factory=dict)

    def keep(self, rules: np.ndarray, lines: np.ndarray, describe: Callable[[int], Reject]) -> dict[int, Reject]:
        """The rejected records that are kept, by their places in the batch; the others are counted in ranges.

        `rules`: the number of the rule that each record breaks, 0 for none. `lines` ascend over all batches. `describe`
        makes the reject of a place.
        """
        places: list[int] = []
        for number in np.unique(rules[rules != 0]).tolist():
            broken = np.flatnonzero(rules == number)
            room = max(self.spec.max_rejects - self._seen[number], 0)
            self._seen[number] += len(broken)
            places += broken[:room].tolist()
            if len(broken) > room:
                self._count(number, broken[room:], lines, describe)
        return {place: describe(place) for place in sorted(places)}

    def _count(self, number: int, places: np.ndarray, lines: np.ndarray, describe: Callable[[int], Reject]) -> None:
        first, last = int(lines[places[0]]), int(lines[places[-1]])
        kept_range = self._ranges.get(number)
        if kept_range is None:
            self._ranges[number] = _Range(first, last, len(places), describe(int(places[0])))
        else:
            kept_range.last_line, kept_range.records = last, kept_range.records + len(places)

    def ranges(self) -> Iterator[pa.RecordBatch]:
        """One batch of `spec.schema()` with the ranges, ordered by the numbers of their rules; no batch without
        ranges."""
        rows = [
            dict(zip(("rule", "reason", "raw"), of.first, strict=True))
            | {"line": of.line, "last_line": of.last_line, "records": of.records}
            for _, of in sorted(self._ranges.items())
        ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, self.spec.schema())
