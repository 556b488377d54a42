"""The examples that ship with Tidemark: each a folder with a source file, landed files, a mart and a notebook."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.config import SHIPPED
from spark_jobs.errors import ParameterError

FOLDER = SHIPPED / "examples"


@dataclass(frozen=True)
class Example:
    """An example. `source`: the name of its source."""

    name: str
    folder: Path

    @property
    def source_file(self) -> Path:
        """The path of the only file in its folder `sources`."""
        (path,) = (self.folder / "sources").glob("*.yml")
        return path

    @property
    def source(self) -> str:
        """The name of the source, which is that of its file."""
        return self.source_file.stem

    @property
    def landed_files(self) -> list[Path]:
        """The files of its drops, relative to a landing folder."""
        landing = self.folder / "landing"
        return sorted(path.relative_to(landing) for path in landing.rglob("*") if path.is_file())

    @property
    def drops(self) -> list[str]:
        """The names of its drops, in their order: the folders of the landed files."""
        return sorted({path.parent.name for path in self.landed_files})


def examples() -> dict[str, Example]:
    """The examples by name."""
    folders = sorted(path.parent for path in FOLDER.glob("*/sources"))
    return {folder.name: Example(folder.name, folder) for folder in folders}


def find_example(name: str) -> Example:
    """The example of this name. Raises ParameterError."""
    by_name = examples()
    if name not in by_name:
        raise ParameterError(
            expected=f"one of the examples {', '.join(by_name)}", found=repr(name), next_step="name one"
        )
    return by_name[name]


def write_example(example: Example, sources: Path, landing: Path) -> list[Path]:
    """Copy the source file into a folder of source files, and the landed files into a landing folder. The written
    paths are returned, the source file first.

    Raises:
        ParameterError: the folder of source files is not there, or one of the files is there already.
    """
    if not sources.is_dir():
        raise ParameterError(
            expected="a folder that is there", found=str(sources), next_step=f"make it: mkdir {sources}"
        )
    copies = {sources / example.source_file.name: example.source_file}
    copies |= {landing / path: example.folder / "landing" / path for path in example.landed_files}
    refuse_overwriting(copies)
    for path, original in copies.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(original, path)
    return list(copies)


def refuse_overwriting(paths: Iterable[Path]) -> None:
    """Raise ParameterError if one of the paths is there."""
    for path in paths:
        if path.exists():
            raise ParameterError(
                expected="files that are not there yet",
                found=str(path),
                consequence="nothing was written",
                next_step="name another folder, or remove that file",
            )
