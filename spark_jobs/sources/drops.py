"""Drops: the intervals `[lo, hi)` of a source's schedule, their sequence numbers, and the row ids of their files.

Sequence numbers count from 0 at the source's `start`. All times are int64 microseconds since 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from spark_jobs.engine.calendar import MONTHS, Drops, local_date, midnight
from spark_jobs.errors import ParameterError
from spark_jobs.sources.quantities import DAY_US, HOUR_US, format_duration, instant_at, parse_instant_in

DROP_BITS = 20
"""Bits of a row id for its drop: enough for 2,870 years of daily drops, or 119 years of hourly ones."""
PLACE_BITS = 43
"""Bits of a row id below those of its drop: the line's place among all lines of the drop's files."""
LINE_BITS = 29
"""Bits of a line number: at most 536,870,911 lines in one file. The largest drop measured, 20M rows, needs 25."""
LINE_LIMIT = 1 << LINE_BITS
"""The first line number that does not fit into a row id."""
_ABOUT_US = {"day": DAY_US, "month": 30 * DAY_US, "quarter": 91 * DAY_US, "year": 365 * DAY_US}
"""Approximate lengths of the calendar's units; only waiting times and sizes of files depend on them."""
_LIMITS = {"drop": 1 << DROP_BITS, "line": LINE_LIMIT}
_FIRST_PLACE = 1 << (PLACE_BITS - 1)
"""The first place for a file. Files that older versions landed have the places below it, by their ranks."""
_PLACES = _FIRST_PLACE - LINE_LIMIT
"""The number of places at which a file may begin, so that even the longest file ends within its drop."""


class RowIdOverflowError(ParameterError):
    """A drop or line number does not fit into a row id. Facts: `part`, `value`, `limit` (the first number refused)."""

    code = "row_id_overflow"
    part: str
    value: int
    limit: int


@dataclass(frozen=True, slots=True)
class Schedule(Drops):
    """The drops of a source: drop `n` is `[start(n), start(n + 1))`. People name a drop by its start."""

    def seq_no_at(self, time_us: int) -> int:
        """The sequence number of the drop that contains `time_us`; refuses a time before the source's start."""
        if time_us < self.start_us:
            raise ParameterError(
                expected=f"a time at or after the source's start, {instant_at(self.start_us):%Y-%m-%dT%H:%MZ}",
                found=f"{instant_at(time_us):%Y-%m-%dT%H:%MZ}",
                next_step="begin at the start, or declare an earlier `start` in the source file",
            )
        return self.number_at(time_us)

    def seq_no_named(self, time_us: int) -> int:
        """The sequence number of the drop that starts at `time_us`.

        A time within a drop is refused: it may mean that drop or a neighbour.
        """
        seq_no = self.seq_no_at(time_us)
        if self.start(seq_no) == time_us:
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
        """The sequence numbers of the drops from the one that starts at `first_us` to the one that starts at `last_us`.

        Both drops are included. A time within a drop is refused.
        """
        if last_us < first_us:
            raise _reversed_range_error(first_us, last_us)
        return range(self.seq_no_named(first_us), self.seq_no_named(last_us) + 1)

    def drops_spanned(self, lo_us: int, hi_us: int) -> range:
        """The sequence numbers of the drops that make up `[lo_us, hi_us)`; refuses an end within a drop."""
        if hi_us <= lo_us:
            raise _reversed_range_error(lo_us, hi_us)
        return range(self.seq_no_named(lo_us), self.seq_no_named(hi_us))

    def drops_covering(self, low_us: int, high_us: int) -> tuple[int, int]:
        """The numbers of the first and the last drop that start within `[low_us, high_us]`."""
        first = self.number_at(low_us)
        return first + (self.start(first) < low_us), self.number_at(high_us)

    def interval(self, seq_no: int) -> tuple[int, int]:
        """The bounds `(lo, hi)` of a drop in microseconds, `hi` exclusive."""
        return self.start(seq_no), self.start(seq_no + 1)

    def time_named(self, text: str) -> int:
        """The instant, in microseconds, of an ISO-8601 date or time as people write it for these drops.

        A time without an offset is in the time zone of the drops. A date means its midnight there.

        Raises:
            ValueError: the text is not an ISO-8601 date or time.
            OverflowError: in UTC it is outside the years 1 to 9999.
            ParameterError: it is a date that the time zone skipped.
        """
        time = datetime.fromisoformat(text)
        time_us = parse_instant_in(time, self.timezone)
        is_date = time.tzinfo is None and time == datetime.combine(time.date(), datetime.min.time())
        if is_date and local_date(time_us, ZoneInfo(self.timezone)) != time.date():
            raise ParameterError(
                expected=f"a day that {self.timezone} had",
                found=f"{text}, which its clocks skipped",
                consequence="nothing was run",
                next_step="name the day before or after it; the drop of the skipped day is empty, and lands with the"
                " one before",
            )
        return time_us

    def label(self, seq_no: int) -> str:
        """The name of a drop for people: its date, with the time of day if a day has several drops."""
        lo = self.local_start(seq_no)
        return f"{lo:%Y-%m-%d}" if self.every_us % DAY_US == 0 else f"{lo:%Y-%m-%dT%H:%M}"

    @property
    def every(self) -> str:
        """The length of a drop, as people write it."""
        if self.calendar is None:
            return format_duration(self.every_us)
        count, unit = self.calendar
        zone = "" if self.timezone == "UTC" else f" of {self.timezone}"
        return f"{count} {unit}{'' if count == 1 else 's'}{zone}"

    def path(self, template: str, seq_no: int) -> str:
        """`template` with `{date}`, `{hour}` and `{minute}` of the drop's start filled in."""
        lo = self.local_start(seq_no)
        filled = template.replace("{date}", f"{lo:%Y-%m-%d}")
        return filled.replace("{hour}", f"{lo:%H}").replace("{minute}", f"{lo:%M}")

    def local_start(self, seq_no: int) -> datetime:
        """The date and time at which the drop starts: local ones for drops of the calendar, else in UTC.

        The drop of a day that the time zone skipped is empty. It gets the date of that day; else it would have the
        name, and take the files, of the drop after it.
        """
        lo = instant_at(self.start(seq_no))
        if self.calendar is None:
            return lo
        clock, day = lo.astimezone(ZoneInfo(self.timezone)), self.day(seq_no)
        is_empty = day is not None and self.start(seq_no + 1) == self.start(seq_no)
        return datetime.combine(day, clock.timetz()) if day is not None and is_empty else clock


def _reversed_range_error(first_us: int, last_us: int) -> ParameterError:
    return ParameterError(
        expected="a range of drops whose first is not after its last",
        found=f"{instant_at(first_us):%Y-%m-%dT%H:%MZ} to {instant_at(last_us):%Y-%m-%dT%H:%MZ}",
        next_step="swap both ends",
    )


def schedule(start_us: int, every: int | tuple[int, str], timezone: str | None) -> Schedule:
    """The drops that a source file declares.

    Drops of days, weeks or longer follow the calendar of the source's time zone. Shorter drops, and days and weeks in
    UTC, have a fixed length in microseconds.
    """
    if isinstance(every, int) and (timezone in (None, "UTC") or every % DAY_US):
        return Schedule(start_us, every)
    count, unit = (every // DAY_US, "day") if isinstance(every, int) else every
    return Schedule(start_us, count * _ABOUT_US[unit], (count, unit), timezone or "UTC")


def first_row_id(seq_no: int, path: str) -> int:
    """The row id of line 1 of the file at `path`, which is relative to the landing directory.

    The upper bits have the drop's number. The lower bits have the file's place in the drop, which is a hash of its
    path. So the id depends neither on other files nor on the order of runs.

    Raises:
        RowIdOverflowError: the drop's number is too great.
    """
    hashed = int.from_bytes(hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest()[:8], "big")
    return (_check_number("drop", seq_no) << PLACE_BITS) + _FIRST_PLACE + hashed % _PLACES


def row_id(first: int, line: int) -> int:
    """The row id of a line, from 1, of the file whose line 1 has the id `first`.

    Raises:
        RowIdOverflowError: the line's number is too great.
    """
    return first + _check_number("line", line) - 1


def line_of(row_id: int, first: int) -> int:
    """The line number, from 1, of a row id in the file whose line 1 has the id `first`."""
    return row_id - first + 1


def drop_of(row_id: int) -> int:
    """The number of the drop that brought a row."""
    return row_id >> PLACE_BITS


def _check_number(part: str, value: int) -> int:
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


def alignment_problem(drops: Schedule) -> tuple[str, str] | None:
    """`(expected, found)` if the drops do not align with days and hours, else None.

    Drops shorter than a day divide the day, and start at a multiple of their length since midnight UTC. Longer drops
    are whole days from a midnight of their time zone, or months from the first day of a month. So a drop's date and
    hour name it, and `--from 2013-01-01` means the same everywhere.
    """
    every_us, start_us = drops.every_us, drops.start_us
    if every_us >= DAY_US:
        if every_us % DAY_US:
            return "`every` in whole days, once it is longer than a day", format_duration(every_us)
    elif every_us % (HOUR_US // 60) or DAY_US % every_us:
        return "`every` in whole minutes that divide a day", format_duration(every_us)
    finding = f"{instant_at(start_us):%Y-%m-%dT%H:%M:%SZ}"
    if drops.calendar is None:
        unit_us = min(every_us, DAY_US)
        expected = f"a start at a multiple of {format_duration(unit_us)} since midnight UTC"
        return (expected, finding) if start_us % unit_us else None
    zone = ZoneInfo(drops.timezone)
    day = local_date(start_us, zone)
    if midnight(day, zone) != start_us:
        return f"a start at midnight of {drops.timezone}", finding
    if drops.calendar[1] in MONTHS and day.day != 1:
        return f"a start on the first day of a month, since drops are {drops.calendar[1]}s", day.isoformat()
    return None
