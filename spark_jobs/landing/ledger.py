"""The ledger of files, and what of a drop's files is new to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import TidemarkError
from spark_jobs.landing.reader import LandingFile
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import FILES
from spark_jobs.storage.times import instant

CARRIED = "pending"
"""Its name in `Lake.carried`: the landings that are not in the trace yet."""


@dataclass(frozen=True, slots=True)
class Landed:
    """One landed file: its checksum, and its rank among the files of its drop, which its rows' ids are made of."""

    checksum: str
    rank: int


class FileChanged(TidemarkError):
    """A landed file has other bytes now, or another file's arrival gave it another rank. Facts: `source`, `files`."""

    code = "file_changed"


@dataclass(frozen=True, slots=True)
class Known:
    """What a run must know of the ledger: `files`, path -> the newest landed version, of the run's drops; `pending`,
    landing -> its rows, of the landings that are not in the trace yet."""

    files: dict[str, Landed]
    pending: dict[int, int]


def known(lake: Lake, source: Source, drops: range, landed_through: int) -> Known:
    """Read the ledger once, for the files of these drops and for the landings beyond `landed_through`."""
    of_drops = F.col("seq_no").between(drops.start, drops.stop - 1)
    ledger = lake.read(FILES).where((F.col("source") == source.name) & (of_drops | (F.col("landing") > landed_through)))
    rows = ledger.select("path", "checksum", "file_rank", "landing", "rows", of_drops.alias("of_drops")).collect()
    files: dict[str, Landed] = {}
    pending: dict[int, int] = {}
    for row in sorted(rows, key=lambda row: row.landing):
        if row.of_drops and row.path is not None:
            files[row.path] = Landed(row.checksum, row.file_rank)
        if row.landing > landed_through:
            pending[row.landing] = pending.get(row.landing, 0) + row.rows
    if lake.carried is not None:
        lake.carried[CARRIED] = json.dumps(list(pending.items()))
    return Known(files, pending)


def pending_landings(lake: Lake, source: Source, landed_through: int) -> dict[int, int]:
    """Landing -> its rows, of the landings beyond `landed_through`, oldest first."""
    if lake.carried is not None and CARRIED in lake.carried:
        return {landing: rows for landing, rows in json.loads(lake.carried[CARRIED]) if landing > landed_through}
    return known(lake, source, range(0), landed_through).pending


def fresh_files(source: Source, files: list[LandingFile], known: dict[str, Landed]) -> list[LandingFile]:
    """The files that have not landed yet.

    Raises:
        FileChanged: a landed file is not the one that landed, or its rows' ids would be others now.
    """
    changed = [
        f"{file.path} ({'other bytes' if known[file.path].checksum != file.checksum else 'another rank in its drop'})"
        for file in files
        if file.path in known and known[file.path] != Landed(file.checksum, file.rank)
    ]
    if changed:
        raise FileChanged(
            expected=f"landed files of {source.name} to stay as they were",
            found=", ".join(changed),
            consequence="nothing of this run's drops was landed",
            next_step="put the landed bytes back; give rows that came later a file of their own whose name sorts last",
            source=source.name,
            files=changed,
        )
    return [file for file in files if file.path not in known]


def ledger_row(
    source: Source, file: LandingFile, counts: dict[str, int], *, landing: int, run_id: str
) -> dict[str, Any]:
    """One row of `bronze.files`."""
    return {
        **drop_bounds(source, file.seq_no),
        "path": file.path,
        "file_rank": file.rank,
        "bytes": file.size,
        "checksum": file.checksum,
        **counts,
        "landing": landing,
        "run_id": run_id,
    }


def empty_drop_row(source: Source, seq_no: int, *, landing: int, run_id: str) -> dict[str, Any]:
    """The ledger's row of a drop that has no file."""
    return {
        **drop_bounds(source, seq_no),
        "rows": 0,
        "rejects": 0,
        "duplicates": 0,
        "landing": landing,
        "run_id": run_id,
    }


def drop_bounds(source: Source, seq_no: int) -> dict[str, Any]:
    """The columns that name a drop."""
    lo_us, hi_us = source.drops.interval(seq_no)
    return {"source": source.name, "seq_no": seq_no, "drop_lo": instant(lo_us), "drop_hi": instant(hi_us)}


def write(lake: Lake, rows: list[dict[str, Any]], fence: Fence) -> None:
    """Commit the ledger's rows: from here on their chunks and rejects count."""
    landed = sum(row["rows"] for row in rows)
    lake.append(FILES, lake.frame(FILES, rows), fence)
    if lake.carried is not None and CARRIED in lake.carried:
        lake.carried[CARRIED] = json.dumps([*json.loads(lake.carried[CARRIED]), (fence.token, landed)])
