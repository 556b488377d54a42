"""A check whether every Delta table of a lake is whole: of the files alone, without Spark, changing nothing.

It checks for each table that the log's versions have no hole, from the last checkpoint or from 0; that every commit and
checkpoint can be parsed; and that every data file of the present version exists with its size in the log. A deep check
also reads every data file against its checksums, so it costs a full read. Commits are always read so.

The files of the lake are listed once, whatever their number. Beside that the check reads each table's log. In an object
store, tables are read several at a time.

Not checked: files that no version names, older versions, and the remains of a table whose creation was stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_jobs.model import ReportStep, report_each, report_nothing
from spark_jobs.storage.delta.data_files import damage_of_file
from spark_jobs.storage.delta.lake_files import LakeFiles
from spark_jobs.storage.delta.log_files import LogBroken, differs, files_of_log
from spark_jobs.storage.delta.places import LakeFolder, file_system
from spark_jobs.threads import THREADS, map_requests


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage of a table: its folder relative to the lake, the file, and the finding."""

    table: str
    file: str
    finding: str


def damaged_tables(
    lake: LakeFolder, files: LakeFiles, *, deep: bool = False, report_step: ReportStep = report_nothing
) -> Iterator[Damage]:
    """All damage of a lake: first that of logs and sizes, table by table, then (`deep`) that within files.

    `files`: the lake's files by an earlier listing. `report_step` is called with the number of tables, and of files,
    that were checked.
    """
    check = _Check(lake, files)
    tables = [table for table in files.logs if not files.is_unfinished(table)]
    sound: list[tuple[str, str]] = []
    checked = map_requests(check.table, tables)
    for table, (damage, whole) in zip(tables, report_each(checked, report_step, "tables", len(tables)), strict=True):
        yield from damage
        sound += [(table, path) for path in whole] if deep else []
    read = map_requests(check.content, sound, THREADS)
    for damage_within in report_each(read, report_step, "contents of files", len(sound)) if deep else ():
        if damage_within:
            yield damage_within


@dataclass(frozen=True)
class _Check:
    """The check of tables whose files were listed before. A file that a log has named since is asked for by itself."""

    lake: LakeFolder
    files: LakeFiles

    def table(self, table: str) -> tuple[list[Damage], list[str]]:
        """The damage that the log and the sizes of files show; and the paths of the other files."""
        try:
            logged = files_of_log(file_system(f"{self.lake.root}/{table}", self.lake.options))
        except LogBroken as broken:
            return [Damage(table, broken.file, broken.finding)], []
        findings = {path: self._by_size(f"{table}/{path}", file.size) for path, file in sorted(logged.items())}
        damage = [Damage(table, path, finding) for path, finding in findings.items() if finding]
        return damage, [path for path, finding in findings.items() if not finding]

    def _by_size(self, path: str, size: int) -> str | None:
        n_bytes = self.files.sizes.get(path)
        if n_bytes is None:
            n_bytes = self.lake.files().get_file_info(path).size
        if n_bytes is None:
            return "is missing"
        return None if n_bytes == size else f"has {n_bytes} bytes, the log says {size}"

    def content(self, file: tuple[str, str]) -> Damage | None:
        """The damage within a file of a table, by its checksums."""
        table, path = file
        system = self.lake.files()
        finding = self._by_sidecar(f"{table}/{path}") or damage_of_file(system, f"{table}/{path}")
        return Damage(table, path, finding) if finding else None

    def _by_sidecar(self, path: str) -> str | None:
        """Compare a file with the checksums that Hadoop, or our writer, keeps beside it on a local disk."""
        folder, _, name = path.rpartition("/")
        sidecar = f"{folder}/.{name}.crc"
        if sidecar not in self.files.sizes:
            return None
        system = self.lake.files()
        with system.open_input_file(path) as file, system.open_input_file(sidecar) as checksums:
            return differs(file.read(), checksums.read())
