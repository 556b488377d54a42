"""The readings of each drop, as `bronze.extracts` has them, and the files that they wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from spark_jobs.extraction.errors import ExtractLost
from spark_jobs.extraction.folder import LandingFolder
from spark_jobs.sources import Source
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.extract_table import EXTRACTS
from spark_jobs.storage.lakes.lake import Lake, TableReader


@dataclass(frozen=True, slots=True)
class ExtractFile:
    """A file of an extract: its path, the name under which it was written, and its content at that time."""

    path: str
    seq_no: int
    hidden: str
    rows: int
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading for one drop. `range`: the part of the origin that was read; its form depends on the kind of origin.
    `rows` and `gone`: the number of rows that it brought, and of those that it removed from files of earlier readings.
    `files`: the files that it wrote, including those of other drops. `run_id`: the run of a committed reading, else
    None."""

    seq_no: int
    number: int
    origin: str
    range: Mapping[str, Any]
    rows: int = 0
    gone: int = 0
    files: tuple[ExtractFile, ...] = ()
    run_id: str | None = None

    def row(self, source: Source, run_id: str) -> dict[str, Any]:
        """The row of `bronze.extracts` for this reading."""
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
        """The reading in a row of `bronze.extracts`, as `row` makes it."""
        files = tuple(ExtractFile(**file) for file in json.loads(row["files"]))
        values = {name: row[name] for name in ("seq_no", "number", "origin", "rows", "gone", "run_id")}
        return cls(range=json.loads(row["range"]), files=files, **values)


@dataclass
class Readings:
    """All readings of a source, oldest first. The first `committed` of them are committed, the others are of this
    run."""

    all: list[Reading]
    committed: int = field(default=0)

    @classmethod
    def load(cls, lake: TableReader, source: Source) -> Readings:
        """The committed readings of a source."""
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
        """The present files of these drops (None: all), each as its newest reading has it; files without rows are left
        out."""
        wanted = None if drops is None else set(drops)
        newest = {file.path: file for reading in self.all for file in reading.files}
        return [file for file in newest.values() if file.rows and (wanted is None or file.seq_no in wanted)]

    def commit(self, lake: Lake, source: Source, fence: Fence, run_id: str) -> None:
        """Make the readings of this run count, all of them in one commit."""
        if new := self.all[self.committed :]:
            lake.record(EXTRACTS, [reading.row(source, run_id) for reading in new], fence)
            self.committed = len(self.all)


def without_rows(lost: Iterable[ExtractFile]) -> tuple[ExtractFile, ...]:
    """The entries of files that are lost and whose drops are read anew: they have no rows."""
    return tuple(replace(file, rows=0, bytes=0, checksum="") for file in lost)


def reveal(readings: Sequence[Reading], folder: LandingFolder) -> None:
    """Give the files of committed readings their names; files that have them already keep them."""
    for reading in readings:
        for file in reading.files:
            folder.move(file.hidden, file.path)


def check_there(files: Iterable[ExtractFile], folder: LandingFolder, source: Source) -> None:
    """Refuse to land a drop if some of its files are gone.

    Raises:
        ExtractLost: a file is gone.
    """
    for file in files:
        if not folder.has(file.path):
            drop = source.drops.label(file.seq_no)
            raise ExtractLost(
                expected=f"the rows extracted for drop {drop} of {source.name}, until they have landed",
                found=f"no file {file.path} in the landing directory",
                consequence="nothing was landed",
                next_step="bring it back, or read the drop again:"
                f" `tidemark run {source.name} --from {drop} --to {drop} --reread`",
                source=source.name,
                path=file.path,
            )


def sweep(readings: Readings, drops: Iterable[int], folder: LandingFolder, source: Source) -> None:
    """Remove the hidden files in the folders of these drops that no reading names: given-up attempts left them."""
    named_files = {file.hidden for reading in readings.all for file in reading.files}
    for seq_no in drops:
        of_drop = source.drops.path(source.path, seq_no).rpartition("/")[0]
        for path in folder.hidden_files(of_drop):
            if path not in named_files:
                folder.remove(path)
