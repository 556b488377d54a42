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

from spark_jobs.kernels.accounts import LISTED_REASONS
from spark_jobs.kernels.records.erased import ERASED
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import visible_rows
from spark_jobs.storage.descriptions.people_tables import DISMISSALS
from spark_jobs.storage.descriptions.tables import FILES, LATE, QUARANTINE
from spark_jobs.storage.descriptions.times import instant, micros

Row = dict[str, Any]
LATE_BY = ("up to 1 hour", "up to 6 hours", "up to 1 day", "up to 1 week", "more than 1 week", "below the horizon")
_LIMITS_US = np.array([1, 6, 24, 24 * 7], np.int64) * 3_600_000_000
OPEN, DISMISSED = "open", "dismissed"


@dataclass
class Drop:
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


def drops(rows: Iterable[Row], source: Source) -> dict[int, Drop]:
    """The drops that have landed, by number; the caller sets `late` and `open`."""
    by_number: dict[int, Drop] = {}
    for row in rows:
        drop = by_number.setdefault(row["seq_no"], Drop(row["seq_no"], source.drops.label(row["seq_no"])))
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
    standing = []
    for key, row in records.items():
        if diffs[key] > 0:
            closed = dismissed.get((row["file"], checksums.get(row["file"]), row["rule"]))
            said = {name: closed[name] if closed else None for name in ("because", "dismissed_by", "dismissed_at")}
            state = ERASED if row["rule"] == ERASED else DISMISSED if closed else OPEN
            standing.append(row | said | {"replay_state": state})
    return sorted(standing, key=lambda row: (row["seq_no"], row["file"] or "", row["line"] or 0))


@dataclass(frozen=True)
class LateRows:
    """Numbers of rows in `silver.late`.

    In `by_drop` and `by_lateness` a row counts once, with the greatest lateness that a definition found. In `by_action`
    it counts once for each definition that lists it; `newest` is the newest time from which such a row is known.
    """

    by_drop: Mapping[int, int]
    by_action: list[Row]
    by_lateness: list[tuple[str, int]]

    @property
    def total(self) -> int:
        """The number of all late rows, each counted once."""
        return sum(self.by_drop.values())


def late(lake: HeldLake, source: Source) -> LateRows:
    """The numbers of the source's late rows that are published, from `silver.late`."""
    current = publication.load(lake, source)
    shown = (pc.field("source") == source.name) & visible_rows(current)
    shown = shown & (pc.field("known_from") < pa.scalar(instant(current.published_us)))
    columns = ["source", "row_id", "definition", "action", "drop_lo", "late_by", "diff", "known_from", "token"]
    key = ["row_id", "drop_lo", "definition", "action", "late_by"]
    net = lake.rows(LATE, columns, shown).group_by(key).aggregate([("diff", "sum"), ("known_from", "max")])
    net = net.filter(pc.greater(net["diff_sum"], 0))
    by_action: dict[tuple[str | None, str], Row] = {}
    summed = net.group_by(["definition", "action"]).aggregate([("diff_sum", "sum"), ("known_from_max", "max")])
    for row in summed.to_pylist():
        summary = {"definition": row["definition"], "action": row["action"], "rows": row["diff_sum_sum"]}
        by_action[row["definition"], row["action"]] = summary | {"newest": row["known_from_max_max"]}
    is_late = pc.invert(pc.is_in(net["action"], pa.array(sorted(LISTED_REASONS))))
    rows = net.filter(is_late).group_by(["row_id", "drop_lo"]).aggregate([("late_by", "max")])
    by_drop = Counter(_seq_no(source, lo) for lo in rows["drop_lo"].to_pylist())
    late_by = rows["late_by_max"].to_numpy()
    kind = np.searchsorted(_LIMITS_US, np.nan_to_num(late_by, nan=0.0), side="left")
    kind = np.where(np.isnan(late_by.astype(float)), len(LATE_BY) - 1, kind)
    by_kind = np.bincount(kind, minlength=len(LATE_BY)).tolist()
    in_order = sorted(by_action.values(), key=lambda row: (row["definition"] or "", row["action"]))
    return LateRows(dict(by_drop), in_order, list(zip(LATE_BY, by_kind, strict=True)))


def _seq_no(source: Source, lo: datetime) -> int:
    return source.drops.seq_no_at(micros(lo))
