"""Landed files that are elsewhere now: the ledger follows them, and none of their rows lands again.

A listed file is a landed one that was moved if it has its bytes and its drop, and the landed one is no longer among the
drop's files. It was renamed, or `landing.path` names another folder. It keeps its row ids. If the same rows come in
files that are cut differently, only a `delta_id` shows that they are the same; without one they are refused.
"""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import TidemarkError
from spark_jobs.landing.counted import counted_rows
from spark_jobs.landing.erasures import erased_values
from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.ledger import LANDED, RETRACTED, Version
from spark_jobs.landing.places import Places
from spark_jobs.landing.reader import read_files
from spark_jobs.landing.survey import Survey
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.row_json import as_json
from spark_jobs.storage.descriptions.tables import row_columns
from spark_jobs.storage.lakes.lake import Lake, with_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FilesCutAnew(TidemarkError):
    """New files have the rows of landed ones that are gone, and no `delta_id` shows that they are the same. Facts:
    `source`, `gone`, `new`."""

    code = "files_cut_anew"


def moved_files(source: Source, listed: Iterable[LandingFile], before: Mapping[str, Version]) -> dict[str, str]:
    """The old and new paths of files that have landed under another path, which is no longer one of their drop's files.

    An empty file never matches. A file that was taken back, and renamed in its folder, comes as a new one; if the whole
    landing has moved, it stays taken back.
    """
    files = list(listed)
    paths = {file.path for file in files}
    gone: dict[tuple[int, str], list[str]] = defaultdict(list)
    for path, version in sorted(before.items(), reverse=True):
        if path not in paths and (version.kind != RETRACTED or not _in_landing(source, version)):
            gone[version.seq_no, version.checksum].append(path)
    moved = {}
    for file in sorted(files, key=lambda file: file.path):
        same = gone.get((file.seq_no, file.checksum))
        if same and file.size and file.path not in before:
            moved[same.pop()] = file.path
    return moved


def _in_landing(source: Source, version: Version) -> bool:
    """True if a file of this path would be one of its drop's files, by the source's present `landing.path`."""
    folder, _, pattern = source.drops.path(source.path, version.seq_no).rpartition("/")
    its_folder, _, its_name = version.path.rpartition("/")
    return its_folder == folder and fnmatch.fnmatchcase(its_name, pattern)


def refuse_cut_anew(lake: Lake, source: Source, surveyed: Survey, listed: Iterable[LandingFile]) -> None:
    """Refuse new files that repeat landed ones which are gone. Either all rows of a new file are in the landed ones, or
    all rows of a landed one are in the new files. Nothing is refused if rows have a `delta_id`.

    Raises:
        FilesCutAnew: there are such files.
    """
    if source.delta_id is not None:
        return
    paths = {file.path for file in listed}
    new = [file for file in surveyed.read if file.path not in surveyed.before and file.problem is None]
    drops = {file.seq_no for file in new}
    gone = [v for p, v in surveyed.before.items() if v.kind == LANDED and p not in paths and v.seq_no in drops]
    if not new or not gone:
        return
    frames = with_frames(lake, "a comparison of files that may have been cut anew")
    near = F.col("seq_no").between(min(drops), max(drops))
    stood = _texts(Places.of(gone, source).locate(counted_rows(frames, source, near)), source)
    read = read_files(frames.spark, source, new, erased_values(lake, source)).where("rule IS NULL")
    come = _texts(read.select(*[column.name for column in row_columns(source)], "file"), source)
    try:
        repeating, repeated = _contained_files(come, stood), _contained_files(stood, come)
    finally:
        stood.unpersist()
        come.unpersist()
    if repeating or repeated:
        raise _cut_anew(source, repeated or [v.path for v in gone], repeating or [f.path for f in new], gone[0].seq_no)


def _texts(rows: DataFrame, source: Source) -> DataFrame:
    """The rows' values as text, with `file`."""
    return rows.withColumn("row_id", F.lit(0).cast("bigint")).select("file", as_json(source).alias("text")).persist()


def _contained_files(files: DataFrame, others: DataFrame) -> list[str]:
    """The files that have rows, all of which are among `others`, too."""
    with_rows = files.select("file").distinct()
    more = files.join(others.select("text"), "text", "left_anti").select("file").distinct()
    return sorted(row.file for row in with_rows.join(more, "file", "left_anti").collect())


def _cut_anew(source: Source, gone: list[str], new: list[str], seq_no: int) -> FilesCutAnew:
    drop = source.drops.label(seq_no)
    return FilesCutAnew(
        expected=f"rows of drop {drop} of {source.name} that have not landed: without `delta_id` nothing tells rows "
        "apart",
        found=f"{', '.join(new[:3])} with rows that landed by {', '.join(gone[:3])}, which is gone: split, or merged",
        consequence="nothing was landed: these rows would count twice",
        next_step=f"take the old file back, `tidemark retract {source.name} --drop {drop} --file {gone[0]}`, and run "
        "again; or bring it back beside the new ones, if their rows only look the same",
        source=source.name,
        gone=gone,
        new=new,
    )
