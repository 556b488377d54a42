"""Bring a set back into an empty home: every file is compared with its checksum, and every table is opened.

The log of a table makes its files count, and the table of publications makes all tables count. So logs are copied after
data, and the log of the publications is the last. A restore that was interrupted can be repeated: it copies the missing
files. So can one that had ended: a lake of which each file is the set's counts as empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.backup.making import COPIES_AT_ONCE
from spark_jobs.backup.own_folders import folders, to_set
from spark_jobs.backup.sets import LAKE, LANDING, SHOWN_MARTS, SOURCES, BackupDamaged, BackupSet, Kept
from spark_jobs.backup.shown_settings import shown_settings
from spark_jobs.backup.stores import Store, report_each
from spark_jobs.config import ENVIRONMENT_PREFIX, Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.model import ReportStep, report_nothing
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.descriptions.tables import PUBLISHED
from spark_jobs.storage.names.shown_marts import notes_folder

_MARK = "restoring"
"""A file of the home with the name of the set, which exists from before the first copy until all tables have been
opened."""


class HomeNotEmpty(TidemarkError):
    """A restore would mix its files with other files. Facts: `files`."""

    code = "home_not_empty"


@dataclass(frozen=True, slots=True)
class Restored:
    """A set that was brought back; its tables have been opened.

    `to_set`: environment variables that must be set to the folders which were brought into the home. `other_settings`:
    settings that differ between the backed up home and this one, each with its value there and here; None if not set.
    """

    back: BackupSet
    files: int
    bytes: int
    to_set: dict[str, str]
    other_settings: dict[str, tuple[Any, Any]]


def restore(
    settings: Settings, place: str, name: str | None = None, report_step: ReportStep = report_nothing
) -> Restored:
    """Bring back the newest set of the backup at `place`, or the one of this name.

    It has the lake, source files, a team's own folders and, if they were backed up, landed files. The catalog and its
    views follow with the next `tidemark up`. Settings are not brought back: they belong to the environment.
    `report_step` is called with the steps.

    Raises:
        HomeNotEmpty: the lake has files already, or a file outside of it exists with other content.
        BackupDamaged: a file of the set is missing or has other bytes.
    """
    store = Store.at(place)
    back = BackupSet.read(store, name)
    places = {LAKE: Store.at(settings.lake), SOURCES: Store.at(settings.sources), LANDING: Store.at(settings.landing)}
    report_step("looking at what is there")
    places[SHOWN_MARTS] = Store.at(notes_folder(settings.home))
    places |= {part: Store.at(folder) for part, folder in folders(settings).items()}
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = settings.home / _MARK
    _check_empty(places, back, mark, settings)
    mark.write_text(back.name)
    copying = _Copying(store, places, report_step)
    for step in _steps(back.files):
        copying.copy(step)
    for n_done, (table, version) in enumerate(back.tables.items()):
        report_step("opening tables", n_done, len(back.tables))
        _open(places[LAKE], table, version)
    mark.unlink()
    bytes_ = sum(file.size for file in back.files)
    return Restored(back, len(back.files), bytes_, to_set(settings, back), _other_settings(settings, back))


def _other_settings(settings: Settings, back: BackupSet) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, by environment variable. Two paths count as equal if they differ only in the home."""
    here, there = shown_settings(settings), dict(back.settings)
    homes = str(there.pop("home", "")), str(here.pop("home"))
    other = {}
    for name in sorted(here.keys() | there.keys()):
        was, now = there.get(name), here.get(name)
        if was != now and _move_location(was, *homes) != now:
            other[f"{ENVIRONMENT_PREFIX}{name.upper()}"] = was, now
    return other


def _move_location(value: Any, old_home: str, new_home: str) -> Any:
    below = isinstance(value, str) and value.startswith(f"{old_home}/")
    return new_home + value.removeprefix(old_home) if below else value


def _steps(files: list[Kept]) -> Iterator[list[Kept]]:
    pointer = f"{PUBLISHED.database}.db/{PUBLISHED.table}/{LOG_DIR}/"
    logs = [file for file in files if file.part == LAKE and f"/{LOG_DIR}/" in file.path]
    yield [file for file in files if file.part != LAKE or f"/{LOG_DIR}/" not in file.path]
    yield [file for file in logs if not file.path.startswith(pointer)]
    yield [file for file in logs if file.path.startswith(pointer)]


def _check_empty(places: dict[str, Store], back: BackupSet, mark: Path, settings: Settings) -> None:
    continues = mark.exists() and mark.read_text() == back.name
    present = []
    if not continues:
        present = [f"{settings.lake}/{path}" for path in _others(places[LAKE], back)]
        present += [str(path) for path in (settings.home / "leases").glob("*.lease")]
        for part in (part for part in places if part != LAKE):
            there = [(file, places[part].size(file.path)) for file in back.of(part)]
            other = [f for f, size in there if size is not None and places[part].checksum(f.path) != f.checksum]
            present += [f"{places[part].place}/{file.path}, with other content" for file in other]
    if present:
        raise HomeNotEmpty(
            expected=f"an empty lake at {settings.lake}, and beside it no other files where the set's files go",
            found=f"{len(present)} files: {', '.join(present[:3])}",
            consequence="nothing was restored",
            next_step="set TIDEMARK_HOME to a new folder (and TIDEMARK_SOURCES, TIDEMARK_LANDING, TIDEMARK_PLUGINS,"
            " TIDEMARK_EXPECTATIONS, TIDEMARK_DBT), or move these away",
            files=present,
        )


def _others(lake: Store, back: BackupSet) -> list[str]:
    """The lake's files, if one of them is not the set's; else none. A restore that was killed as it ended has removed
    its mark, and left these very files."""
    sizes = {path: size for path, size in lake.sizes("").items() if not path.startswith(".")}
    files_of_set = {file.path: file for file in back.of(LAKE)}
    is_whole = all(path in files_of_set and size == files_of_set[path].size for path, size in sizes.items())
    if is_whole and all(lake.checksum(path) == files_of_set[path].checksum for path in sizes):
        return []
    return [*sizes]


@dataclass(frozen=True)
class _Copying:
    store: Store
    places: dict[str, Store]
    report_step: ReportStep

    def copy(self, files: list[Kept]) -> None:
        with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
            damaged = [
                path
                for path in report_each(pool.map(self._one, files), self.report_step, "copying", len(files))
                if path
            ]
        if damaged:
            raise BackupDamaged(
                expected="the files of the set as they were backed up",
                found=f"{len(damaged)} missing or with other bytes: {', '.join(damaged[:5])}",
                consequence="the lake is not whole; nothing reads it",
                next_step="`tidemark verify` lists them; restore another set (--set) into an empty home",
                place=self.store.place,
                files=damaged,
            )

    def _one(self, file: Kept) -> str | None:
        """Copy a file, unless it is there already. Returns its path in the backup if it is missing or damaged, else
        None."""
        target = self.places[file.part]
        if target.size(file.path) == file.size and target.checksum(file.path) == file.checksum:
            return None
        try:
            copied = target.write(file.path, self.store.pieces(file.stored))
        except FileNotFoundError:
            return file.stored
        return None if copied == file.checksum else file.stored


def _open(lake: Store, table: str, version: int) -> None:
    opened = open_table(lake.table(table))
    if opened.version() != version:
        raise BackupDamaged(
            expected=f"version {version} of {table}",
            found=f"version {opened.version()}",
            consequence="the lake is not whole; nothing reads it",
            next_step="restore another set (--set) into an empty home",
            place=lake.place,
            files=[table],
        )
