"""What the files that are there say against the ledger: which to read, which only moved, which go.

A drop's content is what has landed and was not retracted, whether or not it is still there, and what is listed now.
A file's rank is its place by name in that content; rows of a file whose rank changed get other ids.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.ledger import RETRACTED, Version
from spark_jobs.sources.drops import row_id_base


@dataclass(frozen=True)
class Survey:
    """What a landing has to do.

    `read`: files to read, ranked in their drop's content. `before`: what the ledger says of every file of the drops.
    `moved`: landed files that are not read, and the rank that they have now. `retracted`: those to take back.
    `known`: how many listed files are left as they are.
    """

    read: list[LandingFile]
    before: Mapping[str, Version]
    moved: list[tuple[Version, int]]
    retracted: list[Version]
    known: int

    @property
    def changed(self) -> list[str]:
        """Files to read of which the ledger knows a version."""
        return [file.path for file in self.read if file.path in self.before]

    @property
    def only_adds(self) -> bool:
        """Whether nothing that has landed is concerned."""
        return not (self.changed or self.moved or self.retracted)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to land."""
        return bool(self.read) or not self.only_adds


def survey(
    listed: Iterable[LandingFile],
    before: Mapping[str, Version],
    *,
    chosen: Collection[str] | None = None,
    again: Collection[str] | None = (),
    brought_back: bool = False,
) -> Survey:
    """Hold the files of some drops against the ledger's versions of all files of these drops.

    `chosen`: paths that the landing is about, others are left aside (None: all). `again`: paths to read whether or
    not their bytes changed (None: all). `brought_back`: a retracted file that is chosen comes back as it is.

    Raises:
        RowIdOverflowError: a drop has more files than row ids have room for.
    """

    def stays_out(file: LandingFile) -> bool:
        known = before.get(file.path)
        if known is None or known.kind != RETRACTED or known.checksum != file.checksum:
            return False
        return not (brought_back and chosen is not None and file.path in chosen)

    present = {file.path: file for file in listed if not stays_out(file)}
    standing = {path: version for path, version in before.items() if version.kind != RETRACTED}
    ranks = _ranks({**{p: v.seq_no for p, v in standing.items()}, **{p: f.seq_no for p, f in present.items()}})
    read, known = [], 0
    for path, file in present.items():
        version = before.get(path)
        is_new = version is None or version.kind == RETRACTED or version.checksum != file.checksum
        if (chosen is None or path in chosen) and (is_new or again is None or path in again):
            read.append(replace(file, rank=ranks[path]))
        else:
            known += 1
    reading = {file.path for file in read}
    moved = [(v, ranks[p]) for p, v in standing.items() if p not in reading and ranks[p] != v.rank]
    return Survey(sorted(read, key=lambda f: (f.seq_no, f.rank)), before, moved, [], known)


def survey_retraction(listed: Iterable[LandingFile], before: Mapping[str, Version], paths: Collection[str]) -> Survey:
    """What taking back these files asks for: the other files of their drops move up."""
    retracted = [v for p, v in before.items() if p in paths and v.kind != RETRACTED]
    gone = {v.path for v in retracted}
    rest = {p: replace(v, kind=RETRACTED) if p in gone else v for p, v in before.items()}
    others = survey((file for file in listed if file.path not in gone), rest, chosen=())
    return Survey([], before, others.moved, retracted, others.known)


def _ranks(drops: Mapping[str, int]) -> dict[str, int]:
    """Each path's place by name among those of its drop. Raises RowIdOverflowError where row ids have no room for
    it."""
    ranks: dict[str, int] = {}
    counts: dict[int, int] = {}
    for path in sorted(drops, key=os.fsencode):
        ranks[path] = counts.setdefault(drops[path], 0)
        row_id_base(drops[path], ranks[path])
        counts[drops[path]] += 1
    return ranks
