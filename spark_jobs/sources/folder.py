"""The folder of source files: its sources, its broken files, and the names that two sources claim.

A source depends on its own file alone: a broken file stops no other source. All sources share the names of tables, so
a run checks them first (`SourceFolder.clashes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from spark_jobs.errors import ParameterError
from spark_jobs.sources.checks import tables_of
from spark_jobs.sources.load import load_source
from spark_jobs.sources.problems import Problem, SourceFileError, name_problem, unknown_name
from spark_jobs.sources.source import Source

SOURCE_SUFFIXES = (".yml", ".yaml")


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """The content of a folder of source files.

    `sources` and `files`: the sources whose own files have no problem, and the names of these files, by source name.
    `errors`: one error for each other source.
    """

    sources: dict[str, Source]
    files: dict[str, str]
    errors: list[SourceFileError]

    def clashes(self, source: Source) -> list[Problem]:
        """One problem for each name of `source` that gives it a table which another source has too.

        The path of a problem is `source` or `windows.<name>`. The problem's `found` names the other source's file.
        """
        others = {
            table: f"{path} in {self.files[other.name]}"
            for other in self.sources.values()
            if other.name != source.name
            for path, tables in tables_of(other.name, other.windows)
            for table in tables
        }
        clashing = (
            (path, next((table for table in tables if table in others), None))
            for path, tables in tables_of(source.name, source.windows)
        )
        return [
            Problem(path, "a name of its own", f"`{table}`, of {others[table]}, too")
            for path, table in clashing
            if table is not None
        ]

    def order_problems(self, source: Source) -> list[Problem]:
        """One problem for each wrong name in `dag.after`.

        The folder has no source of that name, or the source of that name waits for `source`.
        """
        source_names = {*self.sources, *(Path(error.file).stem for error in self.errors)}
        problems = [
            name_problem("dag.after", "source", name, source_names)
            for name in source.dag.after
            if name not in source_names
        ]
        for name in source.dag.after:
            way = self._way(name, source.name)
            if way:
                listed = " waits for ".join((source.name, *way))
                problems.append(Problem("dag.after", "sources that do not wait for this one", listed))
        return problems

    def _way(self, name: str, to: str) -> tuple[str, ...]:
        """The names of sources on a path along `dag.after` from `name` to `to`, both included; empty without one."""
        ways: list[tuple[str, ...]] = [(name,)]
        seen = {name}
        while ways:
            way = ways.pop(0)
            if way[-1] == to:
                return way
            source = self.sources.get(way[-1])
            following = [each for each in (source.dag.after if source else ()) if each not in seen]
            seen.update(following)
            ways += [(*way, each) for each in following]
        return ()

    def problems(self) -> list[SourceFileError]:
        """All errors of the folder: `errors`, and one more for each source with clashes or an impossible order."""
        by_source = {
            name: [*self.clashes(source), *self.order_problems(source)] for name, source in self.sources.items()
        }
        return [*self.errors, *(SourceFileError(self.files[name], each) for name, each in by_source.items() if each)]


def read_sources(directory: str | Path) -> SourceFolder:
    """Read every source file of a directory; the error of a broken file is listed, not raised."""
    folder = SourceFolder({}, {}, [])
    for name, paths in _paths(directory).items():
        try:
            folder.sources[name] = _load(paths)
            folder.files[name] = paths[0].name
        except SourceFileError as error:
            folder.errors.append(error)
    return folder


def find_source(directory: str | Path, name: str) -> Source:
    """The source `name` of a directory; no other file is read.

    Raises:
        ParameterError: there is no such file; the error lists the sources.
        SourceFileError: the file has problems.
    """
    return load_source(find_source_file(directory, name))


def find_source_file(directory: str | Path, name: str) -> Path:
    """The path of the file of the source `name`; the file is not read.

    Raises:
        ParameterError: there is no such file; the error lists the sources.
        SourceFileError: the source has two files.
    """
    paths = _paths(directory)
    if name not in paths:
        raise unknown_name(
            name,
            paths,
            expected=f"one of the sources {', '.join(paths) or '(none)'}",
            next_step=f"add {name}.yml to the sources' folder, {directory}",
        )
    return _only(paths[name])


def source_files(directory: str | Path) -> dict[str, Path]:
    """The source files of a directory, by source name; the first one if a source has two files."""
    return {name: paths[0] for name, paths in _paths(directory).items()}


def _load(paths: list[Path]) -> Source:
    return load_source(_only(paths))


def _only(paths: list[Path]) -> Path:
    if len(paths) > 1:
        listed = " and ".join(path.name for path in paths)
        raise SourceFileError(paths[0].name, [Problem("source", "one file for each source", listed)])
    return paths[0]


def _paths(directory: str | Path) -> dict[str, list[Path]]:
    """The source files of a directory, by source name. Files whose names start with `.` or `_` are left out.

    Raises:
        ParameterError: there is no such directory.
    """
    if not Path(directory).is_dir():
        raise ParameterError(
            expected="the folder of source files, which TIDEMARK_SOURCES names",
            found=f"no folder {directory}",
            next_step="make the folder, or name another one; `tidemark init FOLDER --from FILE` writes a source file",
        )
    return {stem: list(paths) for stem, paths in groupby(sorted(_candidates(directory)), key=lambda path: path.stem)}


def _candidates(directory: str | Path) -> Iterator[Path]:
    for path in Path(directory).iterdir():
        if path.suffix in SOURCE_SUFFIXES and path.name[0] not in "._":
            yield path
