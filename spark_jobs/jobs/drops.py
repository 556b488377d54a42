"""The state of each drop of a source, read from the landing directory and the lake's records, without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from spark_jobs.config import Settings
from spark_jobs.landing import ledger
from spark_jobs.landing.files import drops_with_files, list_drop_files
from spark_jobs.landing.ledger import LandedDrop
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.lakes.lake import TableReader
from spark_jobs.storage.lakes.stored_lake import StoredLake
from spark_jobs.trace import frontiers
from spark_jobs.trace.gap import gap_before

State = Literal["landed", "partial", "missing"]

LOOK_AHEAD = 366
"""The search for files of later drops ends after this many drops in a row without a file."""


@dataclass(frozen=True, slots=True)
class DropStatus:
    """One drop and its state.

    `landed`: published, with all its files as they are now. `partial`: files came or changed since, or landed and were
    never published. `missing`: never run. `files` and `bytes` count the drop's files in the landing directory, `rows`
    its landed rows.
    """

    seq_no: int
    state: State
    files: int
    bytes: int
    rows: int


def drops_of(
    settings: Settings,
    source: Source,
    lake: TableReader,
    drops: range | None = None,
    *,
    failed: Collection[int] = (),
    ended: int = 0,
) -> list[DropStatus]:
    """The drops of a range; or all drops up to the last one that has landed, has files, or has `failed`.

    `ended` is the number of drops that have ended. Files are looked for in these and in `LOOK_AHEAD` more. A failed
    drop later than the ended ones does not count, since a run may name any time to come.

    Reads every file of the drops for its checksum.
    """
    now = publication.load(lake, source)
    current_frontiers = frontiers.load(lake, source)
    published = current_frontiers
    if current_frontiers.seal_us > now.published_us:
        published = frontiers.published_frontiers(lake, source, now)
    landed = ledger.landed_drops(lake, source)
    ran = {n for lo, hi in published.landed for n in range(lo, hi)}
    landed_or_sealed = {*landed, *(n for lo, hi in current_frontiers.landed for n in range(lo, hi))}
    if drops is None:
        past = max([*landed_or_sealed, *(n for n in failed if n < ended)], default=-1) + 1
        filled = filled_drops(settings, source, max(past, ended))
        drops = range(max(past, max(filled, default=-1) + 1))
    else:
        filled = drops_with_files(settings.landing, source, drops)

    def look(seq_no: int) -> DropStatus:
        listed = list_drop_files(settings.landing, source, seq_no) if seq_no in filled else []
        landed_drop = landed.get(seq_no, LandedDrop())
        state: State = "missing"
        if seq_no in ran or seq_no in landed_or_sealed:
            # a file that was taken back, and one that landed and is gone, leave the drop whole: no run changes either
            whole = seq_no in ran and all(landed_drop.checksums.get(file.path) == file.checksum for file in listed)
            state = "landed" if whole else "partial"
        return DropStatus(seq_no, state, len(listed), sum(file.size for file in listed), landed_drop.rows)

    return [look(seq_no) for seq_no in drops]


def waiting_drops(settings: Settings, source: Source, past: int, ended: int) -> list[int]:
    """The drops from `past` on that have files, among the `ended` ones and `LOOK_AHEAD` more. No file is read."""
    return sorted(n for n in filled_drops(settings, source, max(past, ended), begin=past))


def filled_drops(settings: Settings, source: Source, past: int, begin: int = 0) -> set[int]:
    """The drops that have files: those from `begin` to `past`, and later ones until `LOOK_AHEAD` in a row have none."""
    filled: set[int] = set()
    end = past + LOOK_AHEAD
    while begin < end:
        filled |= drops_with_files(settings.landing, source, range(begin, end))
        begin, end = end, max(end, max(filled, default=-1) + 1 + LOOK_AHEAD)
    return filled


def slices(drops: Iterable[DropStatus], *, batch: int | None, most_bytes: int) -> list[list[DropStatus]]:
    """Groups of neighbouring drops, one group for each run.

    A group has at most `batch` drops; if `batch` is None, drops with at most `most_bytes` bytes of files together. A
    drop with more bytes is a group by itself.
    """
    result: list[list[DropStatus]] = []
    for drop in sorted(drops, key=lambda drop: drop.seq_no):
        last = result[-1] if result else []
        full = len(last) == batch if batch else sum(d.bytes for d in last) + drop.bytes > most_bytes
        if not last or full or last[-1].seq_no + 1 != drop.seq_no:
            result.append([])
        result[-1].append(drop)
    return result


def follows_on(settings: Settings, source: Source, drops: range) -> bool:
    """True if a run of these drops leaves no earlier drop out that was never run, by the lake's records.

    False if only Spark can read these records.
    """
    lake = StoredLake.at(settings.lake)
    if lake is None:
        return False
    current_frontiers = frontiers.load(lake, source)
    return not gap_before(source, current_frontiers, drops.start)
