"""Environments: folders with copies of source files.

The copies can be changed, planned and built while production's files stay as they are. An environment is the folder
`environments/<name>` in Tidemark's home. It contains source files, and a note of each build of them. The tables and
rows of a build are in the lake.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.errors import ParameterError
from spark_jobs.sources.folder import find_source_file, source_files
from spark_jobs.sources.problems import unknown_name

FOLDER = "environments"
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", re.ASCII)
_LONGEST_NAME = 32


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment's name and the folder of its source files."""

    name: str
    folder: Path

    def differences(self, production: Path) -> dict[str, str]:
        """The environment's sources by name: each `same`, `changed` or `new`, by the bytes of production's file."""
        files_of_production = source_files(production)
        return {
            name: "new" if name not in files_of_production else _compare_files(path, files_of_production[name])
            for name, path in source_files(self.folder).items()
        }

    def builds(self) -> dict[str, str]:
        """The note of the build of each source that the environment has built in the lake, by the source's name."""
        return {path.stem: path.read_text(encoding="utf-8") for path in sorted(self._notes.glob("*.json"))}

    def note_build(self, source: str, note: str) -> None:
        """Write the note of the build of a source, in place of an earlier note."""
        self._notes.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self._notes, delete=False) as file:
            file.write(note)
        Path(file.name).replace(self._notes / f"{source}.json")

    def forget_build(self, source: str) -> None:
        """Remove the note of the build of a source, if there is one."""
        (self._notes / f"{source}.json").unlink(missing_ok=True)

    @property
    def _notes(self) -> Path:
        return self.folder / "built"


def _compare_files(path: Path, of_production: Path) -> str:
    return "same" if path.read_bytes() == of_production.read_bytes() else "changed"


def create_environment(home: Path, name: str, production: Path, names: Sequence[str] = ()) -> Environment:
    """Copy production's source files, those of `names` or all, into a new environment.

    If the command is interrupted, there is no new environment.

    Raises:
        ParameterError: the name is invalid, the environment exists already, or there is no such source.
        SourceFileError: a source has two files.
    """
    environment = _environment(home, name)
    if environment.folder.exists():
        raise _refuse_existing(environment)
    files = [find_source_file(production, source) for source in dict.fromkeys(names or source_files(production))]
    parent = environment.folder.parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=parent) as beside:
        fresh = Path(beside) / name
        fresh.mkdir()
        for file in files:
            shutil.copyfile(file, fresh / file.name)
        try:
            fresh.rename(environment.folder)
        except OSError:
            # another command has made it since: `rename` does not replace a folder with files
            if environment.folder.exists():
                raise _refuse_existing(environment) from None
            raise
    return environment


def find_environment(home: Path, name: str) -> Environment:
    """The environment `name`.

    Raises:
        ParameterError: the name is invalid, or there is no such environment; the error lists the environments.
    """
    environment = _environment(home, name)
    if not environment.folder.is_dir():
        names = [other.name for other in environments(home)]
        raise unknown_name(
            name,
            names,
            expected=f"one of the environments {', '.join(names) or '(none)'}",
            next_step=f"create it with `tidemark env create {name}`",
        )
    return environment


def environments(home: Path) -> list[Environment]:
    """All environments, sorted by name."""
    parent = home / FOLDER
    folders = sorted(parent.iterdir()) if parent.is_dir() else []
    return [Environment(folder.name, folder) for folder in folders if folder.is_dir() and _NAME.fullmatch(folder.name)]


def drop_environment(home: Path, name: str) -> None:
    """Remove an environment and its source files. If it is interrupted, the environment is either gone or still whole.

    Raises:
        ParameterError: there is no such environment.
    """
    folder = find_environment(home, name).folder
    with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as beside:
        folder.rename(Path(beside) / name)


def _environment(home: Path, name: str) -> Environment:
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise ParameterError(
            expected=f"a name of an environment: lower-case letters, digits and single underscores between them, "
            f"a letter first, at most {_LONGEST_NAME} characters",
            found=repr(name),
            next_step="take a name such as dev",
        )
    return Environment(name, home / FOLDER / name)


def _refuse_existing(environment: Environment) -> ParameterError:
    return ParameterError(
        expected="the name of a new environment",
        found=f"{environment.name!r}, which is there",
        consequence="it was left as it is",
        next_step=f"change its files in {environment.folder}, or drop it with `tidemark env drop {environment.name}`",
    )
