"""Files that look misplaced: landed files that are gone, copies of landed files, and files beside a drop's folder."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from spark_jobs.landing.files import LandingFile, is_drop_file, landing_directory, names_of
from spark_jobs.landing.ledger import RETRACTED, Version
from spark_jobs.landing.opened import UnusableFileError
from spark_jobs.sources import Source

LIKENESS = 0.6
"""The ratio from which on `difflib` treats two names of folders as alike: `click` and `clicks` have 0.91."""


def gone_files(listed: Iterable[LandingFile], landed: Mapping[str, Version]) -> list[str]:
    """The files in `landed` that are no longer listed, sorted; retracted ones are left out."""
    paths = {file.path for file in listed}
    return sorted(path for path, version in landed.items() if version.kind != RETRACTED and path not in paths)


def copies(new: Iterable[LandingFile], landed: Iterable[Version]) -> list[tuple[str, str]]:
    """New files with the same bytes as a file that landed in another drop, each with the path of that file. Empty files
    are left out."""
    by_bytes = {version.checksum: version for version in landed if version.kind != RETRACTED and version.size}
    pairs = [(file, by_bytes.get(file.checksum)) for file in new]
    return [(file.path, of.path) for file, of in pairs if of is not None and of.seq_no != file.seq_no]


def files_beside(root: str | Path, source: Source, seq_no: int) -> list[str]:
    """Places where files of a drop without any may be, each with the number of files. A place is the drop's folder,
    with names that `landing.path` does not match, or a folder whose name is like one of the path's.

    Raises:
        LandingUnreachable: a remote landing directory does not answer.
    """
    landing = landing_directory(root)
    folder, _, pattern = source.drops.path(source.path, seq_no).rpartition("/")
    try:
        others = [name for name in landing.entries(folder) if is_drop_file(name, "*")]
        places = [f"{folder} has {_files(len(others))}, none of which matches {pattern}"] if others else []
        parts, template = folder.split("/"), source.path.split("/")
        for place, part in enumerate(parts):
            if "{" in template[place]:
                # the name of another drop's folder is always alike
                continue
            beside = [name for name in landing.entries("/".join(parts[:place])) if name != part]
            for name in difflib.get_close_matches(part, beside, cutoff=LIKENESS):
                near = "/".join([*parts[:place], name, *parts[place + 1 :]])
                count = len(names_of(landing, near, pattern))
                places += [f"{near} has {_files(count)}"] if count else []
    except UnusableFileError:
        return []
    return places


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"
