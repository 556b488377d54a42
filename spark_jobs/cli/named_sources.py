"""Sources as command lines name them: by their names, or by the paths of source files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from spark_jobs.sources import Source


def find_source_or_file(name: str) -> tuple[Source, Path]:
    """The source of this name, or of the source file at this path, with its file.

    Raises:
        SourceFileError: the source file is wrong.
        ParameterError: there is no such source or file.
    """
    from spark_jobs.sources import load_source
    from spark_jobs.sources.folder import SOURCE_SUFFIXES, find_source_file

    path = Path(name)
    if path.suffix not in SOURCE_SUFFIXES:
        path = find_source_file(load_settings().sources, name)
    elif not path.is_file():
        raise ParameterError(expected="a source file", found=name, next_step="name a file that is there")
    return load_source(path), path
