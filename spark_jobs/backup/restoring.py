"""Bring a set back into an empty home: every file is compared with its checksum, and every table is opened.

The log of a table makes its files count, and the table of publications makes all tables count. So logs are copied after
data, and the log of the publications is the last. A restore that was interrupted can be repeated: it copies the missing
files. So can one that had ended: a lake of which each file is the set's counts as empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.backup.own_folders import folders, to_set
from spark_jobs.backup.sets import LAKE, LANDING, SHOWN_MARTS, SOURCES, BackupDamaged, BackupSet, Kept
from spark_jobs.backup.shown_settings import shown_settings
from spark_jobs.backup.stores import Store
from spark_jobs.config import ENVIRONMENT_PREFIX, Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.model import ReportStep, report_each, report_nothing
from spark_jobs.storage.coordination.lake_claims import HOMES
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.descriptions.tables import PUBLISHED
from spark_jobs.storage.names.shown_marts import notes_folder
from spark_jobs.threads import map_requests

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
    there = {part: of_part.sizes("") for part, of_part in places.items() if back.of(part) or part == LAKE}
    _check_empty(places, there, back, mark, settings)
    mark.write_text(back.name)
    copying = _Copying(store, places, there, report_step)
    for step in _steps(back.files):
        copying.copy(step)
    opened = map_requests(lambda of_set: _open(places[LAKE], *of_set), back.tables.items())
    for _ in report_each(opened, report_step, "opening tables", len(back.tables)):
        pass
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


_Sizes = dict[str, dict[str, int]]
"""The bytes of the files that are in the place of each part, by path."""


def _check_empty(places: dict[str, Store], there: _Sizes, back: BackupSet, mark: Path, settings: Settings) -> None:
    continues = mark.exists() and mark.read_text() == back.name
    present = []
    if not continues:
        present = [f"{settings.lake}/{path}" for path in _others(places[LAKE], there[LAKE], back)]
        present += [str(path) for path in (settings.home / "leases").glob("*.lease")]
        for part in (part for part in there if part != LAKE):
            other = [f for f in back.of(part) if f.path in there[part] and not _is_same(places[part], there[part], f)]
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


def _others(lake: Store, there: dict[str, int], back: BackupSet) -> list[str]:
    """The lake's files, if one of them is not the set's; else none. A restore that was killed as it ended has removed
    its mark, and left these very files."""
    present = [path for path in there if not path.startswith((".", f"{HOMES}/"))]
    files_of_set = {file.path: file for file in back.of(LAKE)}
    if any(path not in files_of_set or there[path] != files_of_set[path].size for path in present):
        return present
    same = map_requests(lambda path: _is_same(lake, there, files_of_set[path]), present)
    return [] if all(same) else present


def _is_same(store: Store, there: dict[str, int], file: Kept) -> bool:
    """True if the store has a file of the set with the same content; a file of another size is not read."""
    return there.get(file.path) == file.size and store.checksum(file.path) == file.checksum


@dataclass(frozen=True)
class _Copying:
    store: Store
    places: dict[str, Store]
    there: _Sizes
    report_step: ReportStep

    def copy(self, files: list[Kept]) -> None:
        copied = report_each(map_requests(self._one, files), self.report_step, "copying", len(files))
        damaged = [path for path in copied if path]
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
        if _is_same(target, self.there[file.part], file):
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
