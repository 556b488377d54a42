"""The comparison of the listed files with the ledger: which to read, and which to take back.

A file in the ledger keeps its row ids, however they were made; this includes files that an older version landed by
their rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.ledger import RETRACTED, Version


@dataclass(frozen=True)
class Survey:
    """The work of a landing.

    `read`: files to read. `before`: the ledger's versions of all files of the drops. `retracted`: versions to take
    back. `unchanged`: number of listed files that are left as they are.
    """

    read: list[LandingFile]
    before: Mapping[str, Version]
    retracted: list[Version]
    unchanged: int

    @property
    def changed(self) -> list[str]:
        """The paths of files to read of which the ledger has a version."""
        return [file.path for file in self.read if file.path in self.before]

    @property
    def only_adds(self) -> bool:
        """True if the landing concerns nothing that has landed."""
        return not (self.changed or self.retracted)

    @property
    def has_work(self) -> bool:
        """True if there is anything to land."""
        return bool(self.read) or not self.only_adds


def survey(
    listed: Iterable[LandingFile],
    before: Mapping[str, Version],
    *,
    chosen: Collection[str] | None = None,
    again: Collection[str] | None = (),
    brought_back: bool = False,
) -> Survey:
    """Compare the files of some drops with the ledger's versions of all files of these drops.

    `chosen`: the paths that the landing is about; others are left as they are (None: all). `again`: paths to read even
    if their bytes did not change (None: all). `brought_back`: a retracted file that is chosen comes back as it is.
    """

    def stays_out(file: LandingFile) -> bool:
        version = before.get(file.path)
        if version is None or version.kind != RETRACTED or version.checksum != file.checksum:
            return False
        return not (brought_back and chosen is not None and file.path in chosen)

    present = {file.path: file for file in listed if not stays_out(file)}
    read, unchanged = [], 0
    for path, file in present.items():
        version = before.get(path)
        is_new = version is None or version.kind == RETRACTED or version.checksum != file.checksum
        if (chosen is None or path in chosen) and (is_new or again is None or path in again):
            first = None if version is None else version.first_row_id
            read.append(file if first is None else replace(file, first_row_id=first))
        else:
            unchanged += 1
    return Survey(sorted(read, key=lambda f: (f.seq_no, f.path)), before, [], unchanged)


def survey_retraction(listed: Iterable[LandingFile], before: Mapping[str, Version], paths: Collection[str]) -> Survey:
    """The work of taking back the files at these paths."""
    retracted = [v for p, v in before.items() if p in paths and v.kind != RETRACTED]
    gone = {v.path for v in retracted}
    others = survey((file for file in listed if file.path not in gone), before, chosen=())
    return Survey([], before, retracted, others.unchanged)
