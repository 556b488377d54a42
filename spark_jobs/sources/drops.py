"""Drops: the intervals `[lo, hi)` of a source's schedule, their sequence numbers, and the row ids of their files.

Sequence numbers count from 0 at the source's `start`. All times are int64 microseconds since 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from spark_jobs.errors import ParameterError
from spark_jobs.sources.quantities import DAY_US, HOUR_US, format_duration, instant_at

DROP_BITS = 20
"""2,870 years of daily drops, 119 years of hourly ones."""
PLACE_BITS = 43
"""Bits of a row id below those of its drop: the line's place among all lines of the drop's files."""
LINE_BITS = 29
"""536,870,911 lines in one file: 20M rows, the greatest drop we measure, need 25 bits."""
LINE_LIMIT = 1 << LINE_BITS
"""The first line number that a row id has no room for."""
_LIMITS = {"drop": 1 << DROP_BITS, "line": LINE_LIMIT}
_FIRST_PLACE = 1 << (PLACE_BITS - 1)
"""The lower half of a drop's places is left to the files that older versions landed: they lie there by their ranks."""
_PLACES = _FIRST_PLACE - LINE_LIMIT
"""Places at which a file may begin, so that the longest one ends in its drop."""


class RowIdOverflowError(ParameterError):
    """A drop or line number that a row id has no room for. Facts: `part`, `value`, `limit` (first refused)."""

    code = "row_id_overflow"
    part: str
    value: int
    limit: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """The drops of a source: drop `n` is `[start + n * every, start + (n + 1) * every)`."""

    start_us: int
    every_us: int

    def seq_no_at(self, time_us: int) -> int:
        """The sequence number of the drop that holds `time_us`; refuses times before the start."""
        if time_us < self.start_us:
            raise ParameterError(
                expected=f"a time at or after the source's start, {instant_at(self.start_us):%Y-%m-%dT%H:%MZ}",
                found=f"{instant_at(time_us):%Y-%m-%dT%H:%MZ}",
                next_step="begin at the start, or declare an earlier `start` in the source file",
            )
        return (time_us - self.start_us) // self.every_us

    def seq_no_named(self, time_us: int) -> int:
        """The sequence number of the drop that starts at `time_us`; refuses a time within a drop, which may mean it or
        one beside it."""
        seq_no = self.seq_no_at(time_us)
        if self.interval(seq_no)[0] == time_us:
            return seq_no
        beside = [self.label(n) for n in (seq_no - 1, seq_no + 1) if n >= 0]
        raise ParameterError(
            expected="the start of a drop, which names it",
            found=f"{instant_at(time_us):%Y-%m-%dT%H:%MZ}, a time within the drop {self.label(seq_no)}, which ends at"
            f" {self.label(seq_no + 1)}",
            consequence="nothing was run",
            next_step=f"name that drop, {self.label(seq_no)}, or one beside it, {' or '.join(beside)}",
        )

    def seq_nos(self, first_us: int, last_us: int) -> range:
        """The sequence numbers from the drop that starts at `first_us` to the one that starts at `last_us`, both
        included; refuses times within a drop."""
        if last_us < first_us:
            raise ParameterError(
                expected="a range of drops whose first is not after its last",
                found=f"{instant_at(first_us):%Y-%m-%dT%H:%MZ} to {instant_at(last_us):%Y-%m-%dT%H:%MZ}",
                next_step="swap both ends",
            )
        return range(self.seq_no_named(first_us), self.seq_no_named(last_us) + 1)

    def spanned(self, lo_us: int, hi_us: int) -> range:
        """The sequence numbers of the drops that `[lo_us, hi_us)` consists of; refuses ends within a drop."""
        return self.seq_nos(lo_us, hi_us - self.every_us)

    def interval(self, seq_no: int) -> tuple[int, int]:
        """`(lo, hi)` of a drop, `hi` exclusive."""
        lo_us = self.start_us + seq_no * self.every_us
        return lo_us, lo_us + self.every_us

    def label(self, seq_no: int) -> str:
        """What people call the drop: its date, with the time of day where a day has several drops."""
        lo = instant_at(self.interval(seq_no)[0])
        return f"{lo:%Y-%m-%d}" if self.every_us % DAY_US == 0 else f"{lo:%Y-%m-%dT%H:%M}"

    def path(self, template: str, seq_no: int) -> str:
        """`template` with `{date}`, `{hour}` and `{minute}` of the drop's start filled in."""
        lo = instant_at(self.interval(seq_no)[0])
        filled = template.replace("{date}", f"{lo:%Y-%m-%d}")
        return filled.replace("{hour}", f"{lo:%H}").replace("{minute}", f"{lo:%M}")


def first_row_id(seq_no: int, path: str) -> int:
    """The row id of line 1 of the file at `path`, relative to the landing directory: the drop's number in the upper
    bits, below it the file's place in the drop, a hash of its path. So no other file and no order of runs bears on it.

    Raises:
        RowIdOverflowError: the drop's number is too great.
    """
    hashed = int.from_bytes(hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest()[:8], "big")
    return (_checked("drop", seq_no) << PLACE_BITS) + _FIRST_PLACE + hashed % _PLACES


def row_id(first: int, line: int) -> int:
    """The row id of a line, from 1, of the file whose line 1 has the id `first`.

    Raises:
        RowIdOverflowError: the line's number is too great.
    """
    return first + _checked("line", line) - 1


def line_of(row_id: int, first: int) -> int:
    """The line that a row id stands for in the file whose line 1 has the id `first`."""
    return row_id - first + 1


def drop_of(row_id: int) -> int:
    """The number of the drop that brought a row."""
    return row_id >> PLACE_BITS


def _checked(part: str, value: int) -> int:
    least = int(part == "line")
    if not least <= value < _LIMITS[part]:
        raise RowIdOverflowError(
            expected=f"a {part} number from {least} to {_LIMITS[part] - 1}",
            found=str(value),
            next_step="split the file, or declare a longer `every`",
            part=part,
            value=value,
            limit=_LIMITS[part],
        )
    return value


def alignment_problem(start_us: int, every_us: int) -> tuple[str, str] | None:
    """`(expected, found)` where drops would not align with days and hours, else None.

    Drops of less than a day divide the day and start at a multiple of themselves since midnight UTC; longer ones are
    whole days from midnight UTC. So a drop's date and hour name it, and `--from 2013-01-01` means the same everywhere.
    """
    if every_us >= DAY_US:
        if every_us % DAY_US:
            return "`every` in whole days, once it is longer than a day", format_duration(every_us)
        unit_us = DAY_US
    else:
        if every_us % (HOUR_US // 60) or DAY_US % every_us:
            return "`every` in whole minutes that divide a day", format_duration(every_us)
        unit_us = every_us
    if start_us % unit_us:
        found = f"{instant_at(start_us):%Y-%m-%dT%H:%M:%SZ}"
        return f"a start at a multiple of {format_duration(unit_us)} since midnight UTC", found
    return None
