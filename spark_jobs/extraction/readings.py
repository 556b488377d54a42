"""What has been read for which drop, by `bronze.extracts`, and the files that came of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from spark_jobs.extraction.errors import ExtractLost
from spark_jobs.extraction.folder import Folder
from spark_jobs.sources import Source
from spark_jobs.storage.extract_table import EXTRACTS
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake


@dataclass(frozen=True, slots=True)
class ExtractFile:
    """A file of an extract: its path, the name under which it was written, and what it had then."""

    path: str
    seq_no: int
    hidden: str
    rows: int
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading for one drop. `range`: what was read, see the kind. `rows` and `gone`: those that it brought, and
    those that left files of earlier readings. `files`: those that it wrote, also such of other drops. `run_id`:
    of one that is committed."""

    seq_no: int
    number: int
    origin: str
    range: Mapping[str, Any]
    rows: int = 0
    gone: int = 0
    files: tuple[ExtractFile, ...] = ()
    run_id: str | None = None

    def row(self, source: Source, run_id: str) -> dict[str, Any]:
        """As `bronze.extracts` has it."""
        names = ExtractFile.__slots__
        return {
            "source": source.name,
            "seq_no": self.seq_no,
            "number": self.number,
            "origin": self.origin,
            "range": json.dumps(self.range, sort_keys=True),
            "rows": self.rows,
            "gone": self.gone,
            "files": json.dumps([{name: getattr(file, name) for name in names} for file in self.files]),
            "run_id": run_id,
            "extracted_at": datetime.now(UTC),
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Reading:
        """What `row` gave."""
        files = tuple(ExtractFile(**file) for file in json.loads(row["files"]))
        values = {name: row[name] for name in ("seq_no", "number", "origin", "rows", "gone", "run_id")}
        return cls(range=json.loads(row["range"]), files=files, **values)


@dataclass
class Readings:
    """All readings of a source, oldest first; `committed` of them stand, the others are of this run."""

    all: list[Reading]
    committed: int = field(default=0)

    @classmethod
    def load(cls, lake: Lake, source: Source) -> Readings:
        """Those that are committed."""
        rows = lake.records(EXTRACTS, pc.field("source") == source.name)
        readings = sorted((Reading.of_row(row) for row in rows), key=lambda reading: reading.number)
        return cls(readings, len(readings))

    @property
    def next_number(self) -> int:
        """The number of the next reading."""
        return self.all[-1].number + 1 if self.all else 1

    @property
    def of_last_run(self) -> list[Reading]:
        """The readings of the run that committed last."""
        committed = self.all[: self.committed]
        return [reading for reading in committed if reading.run_id == committed[-1].run_id]

    def of_drop(self, seq_no: int) -> list[Reading]:
        """The readings for a drop."""
        return [reading for reading in self.all if reading.seq_no == seq_no]

    def files(self, drops: Iterable[int] | None = None) -> list[ExtractFile]:
        """The files of these drops (None: all) as they are now."""
        wanted = None if drops is None else set(drops)
        newest = {file.path: file for reading in self.all for file in reading.files}
        return [file for file in newest.values() if file.rows and (wanted is None or file.seq_no in wanted)]

    def commit(self, lake: Lake, source: Source, fence: Fence, run_id: str) -> None:
        """Let the readings of this run count, all of them at once."""
        if new := self.all[self.committed :]:
            lake.record(EXTRACTS, [reading.row(source, run_id) for reading in new], fence)
            self.committed = len(self.all)


def without_rows(lost: Iterable[ExtractFile]) -> tuple[ExtractFile, ...]:
    """What is said of files that are lost and whose drops are read anew."""
    return tuple(replace(file, rows=0, bytes=0, checksum="") for file in lost)


def reveal(readings: Sequence[Reading], folder: Folder) -> None:
    """Give the files of committed readings their names; those that have them already keep them."""
    for reading in readings:
        for file in reading.files:
            folder.move(file.hidden, file.path)


def check_there(files: Iterable[ExtractFile], folder: Folder, source: Source) -> None:
    """Refuse to land a drop some of whose files are gone.

    Raises:
        ExtractLost: one is.
    """
    for file in files:
        if not folder.has(file.path):
            drop = source.drops.label(file.seq_no)
            raise ExtractLost(
                expected=f"what was extracted for drop {drop} of {source.name}, until it has landed",
                found=f"no file {file.path} in the landing directory",
                consequence="nothing was landed",
                next_step="bring it back, or read the drop again:"
                f" `tidemark run {source.name} --from {drop} --to {drop} --reread`",
                source=source.name,
                path=file.path,
            )


def sweep(readings: Readings, drops: Iterable[int], folder: Folder, source: Source) -> None:
    """Remove what attempts that were given up left in the folders of these drops, and plans."""
    standing = {file.hidden for reading in readings.all for file in reading.files}
    for seq_no in drops:
        of_drop = source.drops.path(source.path, seq_no).rpartition("/")[0]
        for path in folder.hidden(of_drop):
            if path not in standing:
                folder.remove(path)
