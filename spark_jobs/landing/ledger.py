"""The ledger of files: the version of each file that counts, and the landing since which it does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.landing.files import LandingFile
from spark_jobs.sources import Source
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.records import Rows
from spark_jobs.storage.descriptions.tables import FILES
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.lake import Lake, TableReader

if TYPE_CHECKING:
    from pyspark.sql import Column

LANDED, UNREADABLE, RETRACTED = "landed", "unreadable", "retracted"
"""The kinds of a file's version; see the column `version` of the ledger."""

COUNTS = ("rows", "rejects", "duplicates", "rows_back", "rejects_back", "duplicates_back")
NOTHING = dict.fromkeys(COUNTS, 0)


@dataclass(frozen=True, slots=True)
class Version:
    """The newest version of a file in the ledger.

    The row ids from `first_row_id`, that of its line 1, to `last_row_id` are reserved for the file: this version or an
    earlier one needs them all. Both are None for a file that an older version of Tidemark took back.
    """

    path: str
    seq_no: int
    first_row_id: int | None
    last_row_id: int | None
    size: int
    checksum: str
    kind: str = LANDED
    landing: int | None = None

    def same_as(self, other: Version | None) -> bool:
        """True if both versions are equal, except for their landings and the row ids that they have in reserve."""
        return other is not None and replace(self, landing=other.landing, last_row_id=other.last_row_id) == other

    @classmethod
    def of(cls, file: LandingFile, lines: int, before: Version | None = None, kind: str = LANDED) -> Version:
        """The version of a listed file of `lines` lines, as the ledger would have it; `before` is the ledger's version
        up to now."""
        last = file.first_row_id + lines - 1
        if before is not None and before.last_row_id is not None:
            last = max(last, before.last_row_id)
        return cls(file.path, file.seq_no, file.first_row_id, last, file.size, file.checksum, kind)


@dataclass(frozen=True, slots=True)
class PendingLanding:
    """A landing that is not in the trace yet: its drops, the number of its files, and its counts by the names of
    `COUNTS`."""

    drops: tuple[int, ...] = ()
    files: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict(NOTHING))

    @property
    def n_updates(self) -> int:
        """The number of its rows, including those that it took back."""
        return self.counts["rows"] + self.counts["rows_back"]

    def plus(self, row: Mapping[str, Any]) -> PendingLanding:
        """This landing with one more row of the ledger."""
        return PendingLanding(
            tuple(sorted({*self.drops, row["seq_no"]})),
            self.files + (row["path"] is not None),
            {name: self.counts[name] + (row[name] or 0) for name in COUNTS},
        )


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The ledger as a run needs it. `all_files`: path -> the newest version. `files`: those of the run's drops.
    `pending`: the landings that are not in the trace yet, by their numbers, oldest first."""

    all_files: dict[str, Version]
    files: dict[str, Version]
    pending: dict[int, PendingLanding]


def read_ledger(lake: Lake, source: Source, drops: range | None, landed_through: int) -> LedgerState:
    """Read the ledger once. `drops`: the run's drops, None for all. Landings beyond `landed_through` are pending."""
    rows = _rows(lake, source, pc.scalar(True))
    all_files = {row["path"]: _version(row) for row in rows if row["path"] is not None}
    files = {path: version for path, version in all_files.items() if drops is None or version.seq_no in drops}
    return LedgerState(all_files, files, _pending_landings(row for row in rows if row["landing"] > landed_through))


def _pending_landings(rows: Iterable[Mapping[str, Any]]) -> dict[int, PendingLanding]:
    pending: dict[int, PendingLanding] = {}
    for row in rows:
        pending[row["landing"]] = pending.get(row["landing"], PendingLanding()).plus(row)
    return pending


def versions(lake: TableReader, source: Source) -> dict[str, Version]:
    """The newest versions of all files of the source, by path."""
    return {row["path"]: _version(row) for row in _rows(lake, source, pc.field("path").is_valid())}


def _version(row: Mapping[str, Any]) -> Version:
    of_file = {name: row[name] for name in ("path", "seq_no", "first_row_id", "last_row_id", "checksum", "landing")}
    return Version(size=row["bytes"], kind=row["version"] or LANDED, **of_file)


def pending_landings(lake: Lake, source: Source, landed_through: int) -> dict[int, PendingLanding]:
    """The landings beyond `landed_through`, by their numbers, oldest first."""
    return _pending_landings(_rows(lake, source, pc.field("landing") > landed_through))


def landings_between(lake: Lake, source: Source, after: int, through: int) -> list[int]:
    """The numbers of the landings beyond `after`, up to `through`."""
    return sorted({row["landing"] for row in _rows(lake, source, _between("landing", after + 1, through))})


def rows_by_landing(lake: TableReader, source: Source, first_drop: int = 0) -> dict[int, int]:
    """The number of rows that came to chunks or were taken back, by landing; of drops from number `first_drop` on, so 0
    for a landing of earlier ones."""
    counts: dict[int, int] = {}
    for row in _rows(lake, source, pc.scalar(True)):
        rows = row["rows"] + (row["rows_back"] or 0) if row["seq_no"] >= first_drop else 0
        counts[row["landing"]] = counts.get(row["landing"], 0) + rows
    return counts


@dataclass(slots=True)
class LandedDrop:
    """A drop in the ledger: the newest checksums of its files by path, and the number of their rows that count."""

    checksums: dict[str, str] = field(default_factory=dict)
    rows: int = 0


def landed_drops(lake: TableReader, source: Source) -> dict[int, LandedDrop]:
    """The drops in the ledger, by their numbers; also in a lake that an older version made."""
    drops: dict[int, LandedDrop] = {}
    for row in _rows(lake, source, pc.scalar(True)):
        drop = drops.setdefault(row["seq_no"], LandedDrop())
        drop.rows += row["rows"] - (row.get("rows_back") or 0)
        if row["path"] is not None:
            drop.checksums[row["path"]] = row["checksum"]
    return drops


def _rows(lake: TableReader, source: Source, where: pc.Expression) -> Rows:
    """The source's rows in the ledger, oldest landing first."""
    rows = lake.records(FILES, (pc.field("source") == source.name) & where)
    return sorted(rows, key=lambda row: row["landing"])


def _between(column: str, first: int, last: int) -> pc.Expression:
    return (pc.field(column) >= first) & (pc.field(column) <= last)


def counted_landings(lake: TableReader, source: Source, among: Collection[int] | None = None) -> list[int]:
    """The landings that are in the ledger now, of those in `among` (None: of all): rows of others do not count."""
    where = pc.scalar(True) if among is None else pc.field("landing").isin(pa.array(sorted(among), pa.int64()))
    return sorted({row["landing"] for row in _rows(lake, source, where)})


def is_counted(lake: Lake, source: Source) -> Column:
    """Spark condition: the landing of a row is one of `counted_landings`."""
    return F.col("landing").isin(counted_landings(lake, source))


def ledger_row(
    source: Source, version: Version, counts: Mapping[str, int], *, replaces: Version | None = None
) -> dict[str, Any]:
    """One row of `bronze.files`, without the columns that `write` adds for the landing."""
    return {
        **drop_bounds(source, version.seq_no),
        "path": version.path,
        "first_row_id": version.first_row_id,
        "last_row_id": version.last_row_id,
        "bytes": version.size,
        "checksum": version.checksum,
        "version": version.kind,
        "replaces": None if replaces is None else replaces.landing,
        **{name: counts.get(name, 0) for name in COUNTS},
    }


def empty_drop_row(source: Source, seq_no: int) -> dict[str, Any]:
    """The ledger's row of a drop that has no file."""
    return {**drop_bounds(source, seq_no), **NOTHING}


def drop_bounds(source: Source, seq_no: int) -> dict[str, Any]:
    """The columns that identify a drop: source, number, start and end."""
    lo_us, hi_us = source.drops.interval(seq_no)
    return {"source": source.name, "seq_no": seq_no, "drop_lo": instant(lo_us), "drop_hi": instant(hi_us)}


def write(lake: Lake, rows: list[dict[str, Any]], fence: Fence, run_id: str) -> None:
    """Commit the ledger's rows: from then on their chunks, rejects and duplicates count."""
    of_landing = {"landing": fence.token, "run_id": run_id, "landed_at": datetime.now(UTC)}
    lake.record(FILES, [{**row, **of_landing} for row in rows], fence)
