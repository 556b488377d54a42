"""The contents of a set: the files of every table, at their versions at an instant when no stage is at work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import fs

from spark_jobs.backup.stores import Store, plain
from spark_jobs.errors import TidemarkError
from spark_jobs.model import ReportStep, report_each, report_nothing
from spark_jobs.storage.coordination.lake_claims import HOMES
from spark_jobs.storage.coordination.leases import WAIT_S, hold_still
from spark_jobs.storage.delta.data_files import dataset_of
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.descriptions.people_tables import SOURCE_CHANGES
from spark_jobs.storage.descriptions.tables import FILES, PUBLISHED
from spark_jobs.threads import map_requests

_OF_LOG = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)")
"""The names of a log's files. Checksum files are left out: the next commit removes one, and Spark computes it again."""
_PASSING = re.compile(r"(scratch_\w+|\w+__(silver|gold))\.db/")
"""The folders of databases in which people try things: those of readers, and those of environments."""


_CHANGES = f"{SOURCE_CHANGES.database}.db/{SOURCE_CHANGES.table}"


class NoLake(TidemarkError):
    """The place has no lake to back up. Facts: `lake`."""

    code = "no_lake"


@dataclass(frozen=True)
class Captured:
    """A table at one version: its folder in the lake, the version, data files with their bytes, and files of its
    log."""

    table: str
    version: int
    data: dict[str, int]
    log: tuple[str, ...]


def capture(
    lake: Store, leases: Path, report_step: ReportStep = report_nothing
) -> tuple[list[Captured], dict[str, dict[str, Any]]]:
    """All tables, and the publication of each source, while every source is between two stages of its runs.

    Runs wait meanwhile, for about a second: only versions are noted here. Files that runs replace afterwards stay for
    the time of Delta's retention, and are copied in that time. `report_step` is called with the number of tables.

    Raises:
        SourceBusy: a stage was at work for longer than `fence.WAIT_S`.
        NoLake: nothing was ever published there.
    """
    with ExitStack() as stack:
        for lease in sorted(leases.glob("*.lease")):
            stack.enter_context(hold_still(leases, source=lease.stem, wait_s=WAIT_S))
        names = _tables(lake)
        tables = dict(zip(names, map_requests(lambda name: _open_table(lake, name), names), strict=True))
    pointer = f"{PUBLISHED.database}.db/{PUBLISHED.table}"
    if pointer not in tables:
        raise NoLake(
            expected=f"a lake with published tables at {lake.place}",
            found="none",
            consequence="nothing was backed up",
            next_step="run a source first, or set TIDEMARK_HOME or TIDEMARK_LAKE",
            lake=lake.place,
        )
    rows = tables[pointer].to_pyarrow_table().to_pylist()
    published = {row["source"]: {k: plain(v) for k, v in row.items() if k in _SHOWN} for row in rows}
    captured = map_requests(lambda name: _capture_table(lake, name, tables[name]), sorted(tables))
    return list(report_each(captured, report_step, "versions of tables", len(tables))), published


_SHOWN = ("token", "run_id", "published", "reached", "complete")


def changed_sources(lake: Store) -> set[str]:
    """The sources that were renamed, dropped or reset, by their names at that time. They may have no publication any
    more."""
    if not lake.has_table(_CHANGES):
        return set()
    return {*_open_table(lake, _CHANGES).to_pyarrow_table(columns=["source"])["source"].to_pylist()}


def landed_files(lake: Store, version: int) -> Iterator[tuple[str, str, int]]:
    """Yield the path, checksum and bytes of the newest version of each landed file that counts."""
    handle = lake.folder.handle(FILES)
    files = dataset_of(open_table(handle, version), handle.files())
    rows = files.to_table(filter=pc.field("path").is_valid()).sort_by("landing").to_pylist()
    newest = {(row["source"], row["path"]): row for row in rows}
    for (_, path), row in sorted(newest.items()):
        if row["version"] in (None, "landed"):
            yield path, row["checksum"], row["bytes"]


def _open_table(lake: Store, table: str) -> DeltaTable:
    return open_table(lake.table(table))


def _tables(lake: Store) -> list[str]:
    """The folders of all tables: those in databases, and those of the default database, which is the lake itself."""
    outer = [folder for folder in _folders(lake, "") if folder != HOMES]
    databases = [folder for folder in outer if folder.endswith(".db")]
    inner = map_requests(partial(_folders, lake), databases)
    tables = [f"{database}/{name}" for database, names in zip(databases, inner, strict=True) for name in names]
    tables = [table for table in (*outer, *tables) if table not in databases and not _PASSING.match(table)]
    return [table for table, is_one in zip(tables, map_requests(lake.has_table, tables), strict=True) if is_one]


def _folders(lake: Store, folder: str) -> list[str]:
    listed = lake.files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return [info.base_name for info in listed if info.type == fs.FileType.Directory]


def _capture_table(lake: Store, name: str, table: DeltaTable) -> Captured:
    version = table.version()
    actions = pa.table(table.get_add_actions(flatten=True))
    paths = [unquote(path) for path in actions["path"].to_pylist()]
    return Captured(
        name, version, dict(zip(paths, actions["size_bytes"].to_pylist(), strict=True)), _log(lake, name, version)
    )


def _log(lake: Store, table: str, version: int) -> tuple[str, ...]:
    """The log's files that make up the version: from its last checkpoint on."""
    names = [path.rsplit("/", 1)[-1] for path in lake.sizes(f"{table}/{LOG_DIR}")]
    of_version = {name: int(match[1]) for name in names if (match := _OF_LOG.fullmatch(name))}
    checkpoints = [n for name, n in of_version.items() if ".checkpoint." in name and n <= version]
    first = max(checkpoints, default=0)
    return tuple(sorted(name for name, n in of_version.items() if first <= n <= version))
