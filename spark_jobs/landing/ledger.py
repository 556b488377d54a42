"""The ledger of files, and what of a drop's files is new to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import TidemarkError
from spark_jobs.landing.reader import LandingFile
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import FILES
from spark_jobs.storage.times import instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Landed:
    """One landed file: its checksum, and its rank among the files of its drop, which its rows' ids are made of."""

    checksum: str
    rank: int


class FileChanged(TidemarkError):
    """A landed file has other bytes now, or another file's arrival gave it another rank. Facts: `source`, `files`."""

    code = "file_changed"


def landed_files(lake: Lake, source: Source, drops: range) -> dict[str, Landed]:
    """Path -> the newest landed version, of the files of these drops."""
    of_drops = (
        (F.col("source") == source.name)
        & F.col("seq_no").between(drops.start, drops.stop - 1)
        & F.col("path").isNotNull()
    )
    rows = (
        lake.read(FILES)
        .where(of_drops)
        .groupBy("path")
        .agg(F.max_by("checksum", "landing").alias("checksum"), F.max_by("file_rank", "landing").alias("rank"))
    )
    return {row.path: Landed(row.checksum, row.rank) for row in rows.collect()}


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
    frame: DataFrame = lake.frame(FILES, rows)
    lake.append(FILES, frame, fence)
