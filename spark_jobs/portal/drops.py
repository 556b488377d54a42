"""The facts in a source's ledger and late rows, drop by drop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.windows import LISTED_REASONS
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.late_rows import published_late
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.tables import FILES

Row = dict[str, Any]
LATE_BY = ("up to 1 hour", "up to 6 hours", "up to 1 day", "up to 1 week", "more than 1 week", "below the horizon")
_LIMITS_US = np.array([1, 6, 24, 24 * 7], np.int64) * 3_600_000_000
_COUNTS = ("rows", "rejects", "duplicates")
_LEDGER = ("seq_no", "path", "run_id", "landing", "landed_at", "checksum")
LEDGER = (*_LEDGER, *(f"{name}{back}" for name in _COUNTS for back in ("", "_back")))


@dataclass(slots=True)
class DropFigures:
    """One drop: its numbers of files, rows and records, net of those that were taken back.

    `run_id` and `landing` are those of its last landing. `files`: without the entry that a drop without files has.
    `first_standing`: the landing of the file that has been unchanged for longest.
    """

    seq_no: int
    files: int = 0
    rows: int = 0
    rejects: int = 0
    duplicates: int = 0
    late: int = 0
    open: int = 0
    run_id: str | None = None
    landing: int = -1
    first_standing: int = -1


def ledger(lake: HeldLake, source: Source) -> pa.Table:
    """The source's rows of `bronze.files` with the columns LEDGER, oldest landing first."""
    rows = lake.of_source(FILES, source.name, LEDGER)
    order = pa.table({"landing": rows["landing"], "path": pc.fill_null(rows["path"], "")})
    return rows.take(pc.sort_indices(order, [("landing", "ascending"), ("path", "ascending")]))


def drops(rows: pa.Table) -> dict[int, DropFigures]:
    """The drops that have landed, by number, from `ledger`; the caller sets `late` and `open`."""
    by_number: dict[int, DropFigures] = {}
    paths: dict[int, dict[str | None, int]] = {}
    net = [pc.subtract(pc.fill_null(rows[n], 0), pc.fill_null(rows[f"{n}_back"], 0)).to_pylist() for n in _COUNTS]
    of_landing = (rows[name].to_pylist() for name in ("seq_no", "path", "landing", "run_id"))
    for seq_no, path, landing, run_id, came, rejects, duplicates in zip(*of_landing, *net, strict=True):
        drop = by_number.get(seq_no)
        if drop is None:
            drop = by_number[seq_no] = DropFigures(seq_no)
            paths[seq_no] = {}
        drop.rows += came
        drop.rejects += rejects
        drop.duplicates += duplicates
        # rows come in the order of landings
        paths[seq_no][path] = landing
        if landing > drop.landing:
            drop.landing, drop.run_id = landing, run_id
    for seq_no, drop in by_number.items():
        of_files = [landing for path, landing in paths[seq_no].items() if path is not None]
        drop.files, drop.first_standing = len(of_files), min(of_files or paths[seq_no].values())
    return dict(sorted(by_number.items()))


@dataclass(frozen=True)
class LateRows:
    """Numbers of rows in `silver.late`, beside those by drop.

    In `by_lateness_of_drop` (by drop number and place in LATE_BY) a row counts once, with the greatest lateness that a
    definition found. In `by_action` it counts once for each definition that lists it; `newest` is the newest time from
    which such a row is known.
    """

    by_action: list[Row]
    by_lateness_of_drop: Mapping[tuple[int, int], int]

    @property
    def by_lateness(self) -> list[tuple[str, int]]:
        """The number of late rows by lateness, in the order of LATE_BY."""
        return [
            (name, sum(count for (_, of), count in self.by_lateness_of_drop.items() if of == place))
            for place, name in enumerate(LATE_BY)
        ]


def late_by_drop(lake: HeldLake, source: Source, current: Publication) -> dict[int, int]:
    """The number of the source's late rows that are published, each counted once, by drop."""
    rows = _late_once(_net_late(lake, source, current))
    numbers, counts = np.unique(_numbers(rows, source), return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def late(lake: HeldLake, source: Source, current: Publication) -> LateRows:
    """The numbers of the source's late rows that are published, by lateness and by what definitions did with them."""
    net = _net_late(lake, source, current)
    by_action: dict[tuple[str | None, str], Row] = {}
    groups = net.group_by(["definition", "action"], use_threads=False)
    summed = groups.aggregate([("diff_sum", "sum"), ("known_from_max", "max")])
    for row in summed.to_pylist():
        summary = {"definition": row["definition"], "action": row["action"], "rows": row["diff_sum_sum"]}
        by_action[row["definition"], row["action"]] = summary | {"newest": row["known_from_max_max"]}
    rows = _late_once(net)
    numbers = _numbers(rows, source).tolist()
    late_by = rows["late_by_max"].to_numpy()
    kind = np.searchsorted(_LIMITS_US, np.nan_to_num(late_by, nan=0.0), side="left")
    kind = np.where(np.isnan(late_by.astype(float)), len(LATE_BY) - 1, kind)
    in_order = sorted(by_action.values(), key=lambda row: (row["definition"] or "", row["action"]))
    return LateRows(in_order, dict(Counter(zip(numbers, kind.tolist(), strict=True))))


def _net_late(lake: HeldLake, source: Source, current: Publication) -> pa.Table:
    """The published rows of `silver.late` that count, with the newest time from which each is known."""
    columns = ["row_id", "definition", "action", "drop_lo", "late_by", "diff", "known_from", "token"]
    key = ["row_id", "drop_lo", "definition", "action", "late_by"]
    rows = published_late(lake, source, current, columns)
    net = rows.group_by(key, use_threads=False).aggregate([("diff", "sum"), ("known_from", "max")])
    return net.filter(pc.greater(net["diff_sum"], 0))


def _late_once(net: pa.Table) -> pa.Table:
    """Each late row once, with its greatest lateness."""
    is_late = pc.invert(pc.is_in(net["action"], pa.array(sorted(LISTED_REASONS))))
    return net.filter(is_late).group_by(["row_id", "drop_lo"], use_threads=False).aggregate([("late_by", "max")])


def _numbers(rows: pa.Table, source: Source) -> Any:
    """The numbers of the rows' drops."""
    return source.drops.numbers_at(rows["drop_lo"].cast(pa.int64()).to_numpy())
