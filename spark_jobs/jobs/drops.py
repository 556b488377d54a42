"""What stands of each drop of a source: told by the landing directory and the lake's records, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from spark_jobs.config import Settings
from spark_jobs.landing import ledger
from spark_jobs.landing.files import drops_with_files, list_drop_files
from spark_jobs.landing.ledger import LandedDrop
from spark_jobs.sources import Source
from spark_jobs.storage import publication
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.stored_lake import StoredLake
from spark_jobs.trace import frontiers
from spark_jobs.trace.gap import gap_before

State = Literal["landed", "partial", "missing"]

LOOK_AHEAD = 366
"""How many drops without a file, after the last one that is known or has ended, end the search for files that wait."""


@dataclass(frozen=True, slots=True)
class Drop:
    """One drop. `landed`: published, with all its files as they are now; `partial`: files came or changed since, or
    were landed and never published; `missing`: never run. `files` and `bytes` are those in the landing directory,
    `rows` what has landed of it."""

    seq_no: int
    state: State
    files: int
    bytes: int
    rows: int


def drops_of(
    settings: Settings,
    source: Source,
    lake: Lake,
    drops: range | None = None,
    *,
    failed: Collection[int] = (),
    ended: int = 0,
) -> list[Drop]:
    """The drops of a range, or all up to the last one that has landed, has files, or has `failed`. Files are looked for
    in the first `ended` drops, which are those that have ended, and some more; a failed one later than these does not
    count, since a run may name any time to come.

    Reads every file of theirs for its checksum.
    """
    now = publication.load(lake, source)
    standing = frontiers.load(lake, source)
    published = standing
    if standing.seal_us > now.published_us:
        published = frontiers.published_frontiers(lake, source, now)
    landed = ledger.landed_drops(lake, source)
    ran = {n for lo, hi in published.landed for n in range(lo, hi)}
    begun = {*landed, *(n for lo, hi in standing.landed for n in range(lo, hi))}
    if drops is None:
        past = max([*begun, *(n for n in failed if n < ended)], default=-1) + 1
        filled = _filled(settings, source, max(past, ended))
        drops = range(max(past, max(filled, default=-1) + 1))
    else:
        filled = drops_with_files(settings.landing, source, drops)

    def look(seq_no: int) -> Drop:
        listed = list_drop_files(settings.landing, source, seq_no) if seq_no in filled else []
        known = landed.get(seq_no, LandedDrop())
        state: State = "missing"
        if seq_no in ran or seq_no in begun:
            # a file that was taken back stays out, one that is gone stays in
            whole = seq_no in ran and all(known.checksums.get(file.path) == file.checksum for file in listed)
            state = "landed" if whole else "partial"
        return Drop(seq_no, state, len(listed), sum(file.size for file in listed), known.rows)

    return [look(seq_no) for seq_no in drops]


def _filled(settings: Settings, source: Source, past: int) -> set[int]:
    """The drops that have files: of those before `past`, and beyond until `LOOK_AHEAD` drops in a row have none."""
    filled: set[int] = set()
    begin, end = 0, past + LOOK_AHEAD
    while begin < end:
        filled |= drops_with_files(settings.landing, source, range(begin, end))
        begin, end = end, max(end, max(filled, default=-1) + 1 + LOOK_AHEAD)
    return filled


def slices(drops: Iterable[Drop], *, batch: int | None, most_bytes: int) -> list[list[Drop]]:
    """Neighbouring drops that one run takes each: `batch` of them, or as many as have `most_bytes` bytes of files, and
    a drop that has more alone."""
    result: list[list[Drop]] = []
    for drop in sorted(drops, key=lambda drop: drop.seq_no):
        last = result[-1] if result else []
        full = len(last) == batch if batch else sum(d.bytes for d in last) + drop.bytes > most_bytes
        if not last or full or last[-1].seq_no + 1 != drop.seq_no:
            result.append([])
        result[-1].append(drop)
    return result


def follows_on(settings: Settings, source: Source, drops: range) -> bool:
    """Whether a run of these drops leaves none out that was never run, as far as the lake's records tell without Spark:
    where they lie so that Spark alone can read them, it is not known, and False."""
    lake = StoredLake.at(settings.lake)
    if lake is None:
        return False
    standing = frontiers.load(lake, source)
    return not gap_before(source, standing, drops.start)
