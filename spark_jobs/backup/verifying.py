"""Compare a set with the files of the backup, and with the lake."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.backup.sets import DATA, LAKE, OBJECTS, BackupSet, Kept
from spark_jobs.backup.stores import Store
from spark_jobs.config import Settings
from spark_jobs.model import ReportStep, report_each, report_nothing
from spark_jobs.threads import map_requests


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a comparison. `damaged`: the fault of each file of the set that is missing or differs in the
    backup. `elsewhere`: the data files that the lake still has under the same names, but with other sizes."""

    compared: BackupSet
    files: int
    bytes: int
    damaged: dict[str, str]
    elsewhere: dict[str, str]


def verify(
    settings: Settings, place: str, name: str | None = None, report_step: ReportStep = report_nothing
) -> Verified:
    """Compare every file of a set (the newest, or the one of this name) with its checksum. The sizes of the lake's own
    data files are compared with the set, too. `report_step` is called with the number of files read.

    Raises:
        BackupDamaged: there is no such set.
    """
    store, lake = Store.at(place), Store.at(settings.lake)
    kept = BackupSet.read(store, name)
    stored = {file.stored: file for file in kept.files}
    report_step("list of the backup's files")
    sizes = {**store.sizes(DATA), **store.sizes(OBJECTS)}
    read = map_requests(lambda file: finding(store, file, sizes.get(file.stored)), stored.values())
    findings = dict(zip(stored, report_each(read, report_step, "reading files", len(stored)), strict=True))
    report_step("list of the lake's files")
    here = lake.sizes("")
    elsewhere = {
        file.path: f"has {here[file.path]} bytes in the lake, {file.size} in the backup"
        for file in kept.of(LAKE)
        if file.path.endswith(".parquet") and here.get(file.path, file.size) != file.size
    }
    damaged = {path: what for path, what in findings.items() if what}
    return Verified(kept, len(stored), sum(file.size for file in stored.values()), damaged, elsewhere)


def finding(store: Store, file: Kept, size: int | None) -> str | None:
    """The fault of a file of a set, in words; None if it is unchanged since the backup.

    `size`: its bytes in the backup, None if it is not there.
    """
    if size is None:
        return "is missing"
    if size != file.size:
        return f"has {size} bytes, {file.size} were backed up"
    try:
        return None if store.checksum(file.stored) == file.checksum else "has other bytes than were backed up"
    except FileNotFoundError:
        return "is missing"
