"""Make a set: copy the files that the backup lacks, then write the list that makes the set count."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from spark_jobs.backup.capture import Captured, capture, changed_sources, landed_files
from spark_jobs.backup.own_folders import own_files
from spark_jobs.backup.sets import (
    DATA,
    LAKE,
    LANDING,
    OBJECTS,
    SHOWN_MARTS,
    SOURCES,
    BackupDamaged,
    BackupSet,
    Kept,
)
from spark_jobs.backup.shown_settings import shown_settings
from spark_jobs.backup.stores import PIECE_BYTES, Store, as_pieces
from spark_jobs.config import LAST_BACKUP, Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.model import ReportStep, report_each, report_nothing
from spark_jobs.sources.folder import SOURCE_SUFFIXES
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.descriptions.tables import FILES
from spark_jobs.storage.names.shown_marts import notes
from spark_jobs.threads import map_requests

T = TypeVar("T")
Copied = TypeVar("Copied")
_NAME = "%Y%m%dT%H%M%S.%fZ"
"""The format of a set's name, for `strftime`."""
ATTEMPTS = 3
"""The most attempts to make a set; another one follows if a table was vacuumed meanwhile."""


class LandedFilesChanged(TidemarkError):
    """Landed files are missing, or have other contents than when they landed. Facts: `files`."""

    code = "landed_files_changed"


@dataclass(frozen=True, slots=True)
class Backup:
    """A set that was made, and the number and bytes of its files that had to be copied."""

    backup_set: BackupSet
    copied_files: int
    copied_bytes: int


def back_up(
    settings: Settings, place: str, *, landing: bool = False, report_step: ReportStep = report_nothing
) -> Backup:
    """Add a set to the backup at `place`. Runs continue meanwhile.

    The set has the lake as it is published now, the source files, and a team's own folders (plugins, expectations, dbt
    models, environments). With `landing`, it also has the landed files that count. `report_step` is called with the
    steps.

    Raises:
        NoLake: nothing was published yet.
        BackupDamaged: the backup is of another lake.
        SourceBusy: a stage was at work all the time.
        LandedFilesChanged: with `landing`, some landed files are missing or have other contents than when they landed.
    """
    # files that runs replaced long ago were vacuumed before they were copied: the tables have newer versions
    tries = Retrying(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(ATTEMPTS), reraise=True)
    return tries(lambda: _Making(settings, Store.at(place), report_step).make(landing=landing))


class _Making:
    def __init__(self, settings: Settings, store: Store, report_step: ReportStep) -> None:
        self._settings, self._store, self._report_step = settings, store, report_step
        report_step("looking at what the backup has")
        self._lake = Store.at(settings.lake)
        names = BackupSet.names(store)
        self._before = BackupSet.read(store, names[-1]) if names else None
        self._files_before = {file.stored: file for file in self._before.files} if self._before else {}
        self._there = {**store.sizes(DATA), **store.sizes(OBJECTS)}
        self._copied: list[int] = []

    def make(self, *, landing: bool) -> Backup:
        self._report_step("noting the tables' versions")
        tables, published = capture(self._lake, self._settings.home / "leases", self._report_step)
        self._check_lineage(published)
        files = self._all("data files", self._data, [file for table in tables for file in _data(table)])
        files += self._all("logs of tables", self._keep_logged, [path for table in tables for path in _log(table)])
        self._report_step("source files and a team's own")
        files += [self._object(SOURCES, path.name, path.read_bytes()) for path in self._source_files()]
        files += [self._object(part, path, (at / path).read_bytes()) for part, at, path in own_files(self._settings)]
        # if a mart was built meanwhile, its note has another version than the set: the mart is built anew then
        files += [self._object(SHOWN_MARTS, note.name, note.read_bytes()) for note in notes(self._settings.home)]
        if landing:
            version = next(t.version for t in tables if t.table == f"{FILES.database}.db/{FILES.table}")
            files += self._keep_landed(version)
        backup_set = BackupSet(
            name=self._name(),
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            lake=self._settings.lake,
            tables={table.table: table.version for table in tables},
            published=published,
            files=sorted(files, key=lambda file: (file.part, file.path)),
            settings=shown_settings(self._settings),
        )
        backup_set.write(self._store)
        (self._settings.home / LAST_BACKUP).write_text(json.dumps({"place": self._store.place, "set": backup_set.name}))
        return Backup(backup_set, len(self._copied), sum(self._copied))

    def _name(self) -> str:
        """The name of the new set: the time, for people. It is always greater than the name of the set before, whatever
        the clock shows: the newest set is the one with the greatest name."""
        time = datetime.now(UTC)
        if self._before:
            with suppress(ValueError):  # a set that somebody gave another name
                before = datetime.strptime(self._before.name, _NAME).replace(tzinfo=UTC)
                time = max(time, before + timedelta(microseconds=1))
        return time.strftime(_NAME)

    def _source_files(self) -> list[Path]:
        return sorted(path for path in self._settings.sources.glob("*") if path.suffix in SOURCE_SUFFIXES)

    def _check_lineage(self, published: dict[str, dict[str, object]]) -> None:
        """Raise BackupDamaged if the set before is of another lake. In the same lake, each source of the set before is
        still published, under no smaller token, unless it was renamed, dropped or reset."""
        before = self._before.published if self._before else {}
        changed = changed_sources(self._lake) if {*before} - {*published} else set()
        for source, row in before.items():
            now = published.get(source)
            if now is None and source in changed:
                continue
            if now is None or int(str(now["token"])) < int(str(row["token"])):
                raise BackupDamaged(
                    expected=f"a backup of this lake in {self._store.place}",
                    found=f"one in which {source} was published under token {row['token']}, here "
                    + ("it never was" if now is None else f"under {now['token']}"),
                    consequence="nothing was backed up",
                    next_step="name another place: one backup has the sets of one lake",
                    place=self._store.place,
                    files=[],
                )

    def _all(self, what: str, copy: Callable[[T], Copied], files: Sequence[T]) -> list[Copied]:
        return [*report_each(map_requests(copy, files), self._report_step, what, len(files))]

    def _data(self, file: tuple[str, int]) -> Kept:
        path, size = file
        stored = f"{DATA}/{path}"
        earlier = self._files_before.get(stored)
        if self._there.get(stored) != size:
            checksum = self._store.write(stored, self._lake.pieces(path))
            self._copied.append(size)
        else:
            checksum = earlier.checksum if earlier else self._store.checksum(stored)
        return Kept(LAKE, path, size, checksum, stored)

    def _keep_logged(self, path: str) -> Kept:
        return self._object(LAKE, path, self._lake.read(path))

    def _object(self, part: str, path: str, content: bytes) -> Kept:
        """Keep a file by its checksum, as a later file of the same name may have other content."""
        checksum = hashlib.sha256(content).hexdigest()
        stored = f"{OBJECTS}/{checksum}"
        if self._there.get(stored) != len(content):
            self._store.write(stored, as_pieces(content))
            self._copied.append(len(content))
        return Kept(part, path, len(content), checksum, stored)

    def _keep_landed(self, version: int) -> list[Kept]:
        landed = list(landed_files(self._lake, version))
        copies = self._all("landed files", partial(self._keep_landed_file, Store.at(self._settings.landing)), landed)
        changed = [path for (path, *_), file in zip(landed, copies, strict=True) if file is None]
        if changed:
            raise LandedFilesChanged(
                expected=f"the files that landed, in {self._settings.landing}",
                found=f"{len(changed)} gone or changed: {', '.join(changed[:5])}",
                consequence="no set was made",
                next_step="bring them back, run their drops again, or back up without --landing",
                files=changed,
            )
        return [file for file in copies if file is not None]

    def _keep_landed_file(self, folder: Store, file: tuple[str, str, int]) -> Kept | None:
        """Keep a landed file; None if it is gone, or has other content than when it landed."""
        path, checksum, size = file
        stored = f"{OBJECTS}/{checksum}"
        if self._there.get(stored) == size:
            return Kept(LANDING, path, size, checksum, stored)
        # an object has the name of its content, so that is compared before it is written
        try:
            if size <= PIECE_BYTES:
                content = folder.read(path)
                is_same = hashlib.sha256(content).hexdigest() == checksum
                return self._object(LANDING, path, content) if is_same else None
            if folder.checksum(path) != checksum:
                return None
            self._store.write(stored, folder.pieces(path))
        except FileNotFoundError:
            return None
        self._copied.append(size)
        return Kept(LANDING, path, size, checksum, stored)


def _data(table: Captured) -> list[tuple[str, int]]:
    return [(f"{table.table}/{path}", size) for path, size in sorted(table.data.items())]


def _log(table: Captured) -> list[str]:
    return [f"{table.table}/{LOG_DIR}/{name}" for name in table.log]
