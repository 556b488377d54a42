"""The names that users read: views and functions that follow a source's published definition, also after a crash.

They follow the code as well: names that a newer version of Tidemark defines otherwise are defined anew by the next run.
The parts of the definition that a source's names show are noted in a file beside the lake.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import define_names, drop_names, names_lacking, names_version
from spark_jobs.sources import Source, SourceFileError, read_sources
from spark_jobs.storage.lakes.lake import Lake

_WINDOW = "window."
_MARK = ".definition"


def check_names(settings: Settings, source: Source, definition: str) -> None:
    """Refuse a source that claims a table of another source; names that it has published already stay its own.

    `definition`: the published one; empty if nothing is published.

    Raises:
        SourceFileError: another source file claims a name that this one has not published.
    """
    published = json.loads(definition or "{}")
    names_of_source = {*(["source"] if published else []), *(f"windows.{window}" for window in _windows(published))}
    if names_of_source.issuperset({"source", *(f"windows.{window}" for window in source.windows)}):
        return  # the files of hundreds of other sources need not be read
    folder = read_sources(settings.sources)
    clashes = [clash for clash in folder.clashes(source) if clash.path not in names_of_source]
    if clashes:
        raise SourceFileError(folder.files[source.name], clashes)


def names_follow(settings: Settings, lake: Lake, source: Source) -> None:
    """Define the source's names anew, and note the definition that they show."""
    given_up = {*_windows(_read_note(settings, source.name))} - {*source.windows}
    define_names(lake, source, _of_no_other(settings, source.name, given_up))
    marker = _marker(settings, source.name)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(_text_of_note(source))


def forget_names(settings: Settings, lake: Lake, source: str, windows: Iterable[str]) -> None:
    """Remove the names of a source that is removed: its own, and those of `windows` and of the windows noted for it."""
    windows_with_names = {*windows, *_windows(_read_note(settings, source))}
    drop_names(lake, source, _of_no_other(settings, source, windows_with_names))
    _marker(settings, source).unlink(missing_ok=True)


def _of_no_other(settings: Settings, source: str, windows: set[str]) -> set[str]:
    """The given windows without those of other sources.

    The windows of a source are those that its file declares; if the file is broken or gone, those noted for it.
    """
    if not windows:
        return windows
    sources = read_sources(settings.sources).sources
    others = {window for name, one in sources.items() if name != source for window in one.windows}
    for note in _marker(settings, source).parent.glob(f"*{_MARK}"):
        name = note.name.removesuffix(_MARK)
        if name not in {*sources, source}:
            others |= {*_windows(_read_note(settings, name))}
    return windows - others


def let_names_follow(settings: Settings, lake: Lake, source: Source) -> str | None:
    """Define the source's names anew if some are missing or show another definition.

    Returns a sentence that lists the missing names; None if there were none.
    """
    lacking = names_lacking(lake, [source]).get(source.name)
    if lacking or _read_note(settings, source.name) != json.loads(_text_of_note(source)):
        names_follow(settings, lake, source)
    return f"names that users read were missing, and are defined anew: {', '.join(lacking)}" if lacking else None


def _text_of_note(source: Source) -> str:
    """The note of a source's names: the definition by parts, and a hash of the statements that define the names."""
    return json.dumps({**source.definition_parts(), "names": names_version(source)}, sort_keys=True)


def _read_note(settings: Settings, source: str) -> dict[str, Any]:
    """The note from when the source's names were last defined; empty if they never were, or the note is cut off."""
    try:
        noted = json.loads(_marker(settings, source).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _windows(parts: dict[str, Any]) -> list[str]:
    """The windows among the parts of a definition."""
    return [part.removeprefix(_WINDOW) for part in parts if part.startswith(_WINDOW)]


def _marker(settings: Settings, source: str) -> Path:
    return settings.home / "views" / f"{source}{_MARK}"
