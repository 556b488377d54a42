"""The facts in a source's ledger, quarantine and late rows, drop by drop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.records import ERASED
from spark_jobs.engine.windows import LISTED_REASONS
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.late_rows import published_late
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.people_tables import DISMISSALS
from spark_jobs.storage.descriptions.tables import FILES, QUARANTINE
from spark_jobs.storage.descriptions.times import micros

Row = dict[str, Any]
LATE_BY = ("up to 1 hour", "up to 6 hours", "up to 1 day", "up to 1 week", "more than 1 week", "below the horizon")
_LIMITS_US = np.array([1, 6, 24, 24 * 7], np.int64) * 3_600_000_000
OPEN, DISMISSED = "open", "dismissed"


@dataclass
class DropFigures:
    """One drop: its numbers of rows and records, net of those that were taken back.

    `run_id` and `landing` are those of its last landing. `paths` has the last landing of each file.
    """

    seq_no: int
    label: str
    rows: int = 0
    rejects: int = 0
    duplicates: int = 0
    late: int = 0
    open: int = 0
    run_id: str | None = None
    landing: int = -1
    paths: dict[str | None, int] = field(default_factory=dict)

    @property
    def files(self) -> int:
        """The number of files that landed, without the entry (of path None) that a drop without files has."""
        return sum(path is not None for path in self.paths)

    @property
    def first_standing(self) -> int:
        """The landing of the file that has been unchanged for longest; -1 if nothing has landed."""
        of_files = [landing for path, landing in self.paths.items() if path is not None]
        return min(of_files or self.paths.values(), default=-1)


def ledger(lake: HeldLake, source: Source) -> list[Row]:
    """The source's rows of `bronze.files`, oldest landing first."""
    rows = lake.records(FILES, pc.field("source") == source.name)
    return sorted(rows, key=lambda row: (row["landing"], row["path"] or ""))


def drops(rows: Iterable[Row], source: Source) -> dict[int, DropFigures]:
    """The drops that have landed, by number; the caller sets `late` and `open`."""
    by_number: dict[int, DropFigures] = {}
    for row in rows:
        drop = by_number.setdefault(row["seq_no"], DropFigures(row["seq_no"], source.drops.label(row["seq_no"])))
        for column in ("rows", "rejects", "duplicates"):
            change = (row[column] or 0) - (row[f"{column}_back"] or 0)
            setattr(drop, column, getattr(drop, column) + change)
        drop.paths[row["path"]] = max(row["landing"], drop.paths.get(row["path"], -1))
        if row["landing"] > drop.landing:
            drop.landing, drop.run_id = row["landing"], row["run_id"]
    return dict(sorted(by_number.items()))


def quarantine(lake: HeldLake, source: Source) -> list[Row]:
    """The records that are in quarantine now, in the order of drops, files and lines.

    They have the columns of the view `bronze.quarantine`: `replay_state` is open, dismissed or erased.
    """
    of_ledger = ledger(lake, source)
    landings = {row["landing"] for row in of_ledger}
    checksums = {row["path"]: row["checksum"] for row in of_ledger}
    dismissed = {
        (row["file"], row["checksum"], row["rule"]): row
        for row in sorted(lake.records(DISMISSALS, pc.field("source") == source.name), key=lambda r: r["dismissed_at"])
    }
    identity = ("seq_no", "file", "line", "rule", "reason", "raw")
    records: dict[tuple[Any, ...], Row] = {}
    diffs: Counter[tuple[Any, ...]] = Counter()
    for row in lake.records(QUARANTINE, pc.field("source") == source.name):
        if row["landing"] in landings:
            key = tuple(row[column] for column in identity)
            diffs[key] += row["diff"]
            records.setdefault(key, {column: row[column] for column in (*identity, "run_id")})
    listed_records = []
    for key, row in records.items():
        if diffs[key] > 0:
            closed = dismissed.get((row["file"], checksums.get(row["file"]), row["rule"]))
            dismissal = {name: closed[name] if closed else None for name in ("because", "dismissed_by", "dismissed_at")}
            state = ERASED if row["rule"] == ERASED else DISMISSED if closed else OPEN
            listed_records.append(row | dismissal | {"replay_state": state})
    return sorted(listed_records, key=lambda row: (row["seq_no"], row["file"] or "", row["line"] or 0))


@dataclass(frozen=True)
class LateRows:
    """Numbers of rows in `silver.late`.

    In `by_drop` and `by_lateness_of_drop` (by drop number and place in LATE_BY) a row counts once, with the greatest
    lateness that a definition found. In `by_action` it counts once for each definition that lists it; `newest` is the
    newest time from which such a row is known.
    """

    by_drop: Mapping[int, int]
    by_action: list[Row]
    by_lateness_of_drop: Mapping[tuple[int, int], int]

    @property
    def total(self) -> int:
        """The number of all late rows, each counted once."""
        return sum(self.by_drop.values())

    @property
    def by_lateness(self) -> list[tuple[str, int]]:
        """The number of late rows by lateness, in the order of LATE_BY."""
        return [
            (name, sum(count for (_, of), count in self.by_lateness_of_drop.items() if of == place))
            for place, name in enumerate(LATE_BY)
        ]


def late(lake: HeldLake, source: Source) -> LateRows:
    """The numbers of the source's late rows that are published, from `silver.late`."""
    columns = ["source", "row_id", "definition", "action", "drop_lo", "late_by", "diff", "known_from", "token"]
    key = ["row_id", "drop_lo", "definition", "action", "late_by"]
    net = published_late(lake, source, columns).group_by(key).aggregate([("diff", "sum"), ("known_from", "max")])
    net = net.filter(pc.greater(net["diff_sum"], 0))
    by_action: dict[tuple[str | None, str], Row] = {}
    summed = net.group_by(["definition", "action"]).aggregate([("diff_sum", "sum"), ("known_from_max", "max")])
    for row in summed.to_pylist():
        summary = {"definition": row["definition"], "action": row["action"], "rows": row["diff_sum_sum"]}
        by_action[row["definition"], row["action"]] = summary | {"newest": row["known_from_max_max"]}
    is_late = pc.invert(pc.is_in(net["action"], pa.array(sorted(LISTED_REASONS))))
    rows = net.filter(is_late).group_by(["row_id", "drop_lo"]).aggregate([("late_by", "max")])
    numbers = [_seq_no(source, lo) for lo in rows["drop_lo"].to_pylist()]
    late_by = rows["late_by_max"].to_numpy()
    kind = np.searchsorted(_LIMITS_US, np.nan_to_num(late_by, nan=0.0), side="left")
    kind = np.where(np.isnan(late_by.astype(float)), len(LATE_BY) - 1, kind)
    in_order = sorted(by_action.values(), key=lambda row: (row["definition"] or "", row["action"]))
    return LateRows(dict(Counter(numbers)), in_order, dict(Counter(zip(numbers, kind.tolist(), strict=True))))


def _seq_no(source: Source, lo: datetime) -> int:
    return source.drops.seq_no_at(micros(lo))
