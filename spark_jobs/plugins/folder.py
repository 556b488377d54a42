"""The folder of plugins as this process sees it: the declarations of its files, and their problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from spark_jobs.aggregates import AGGREGATES, Signature
from spark_jobs.plugins.code import Plugin
from spark_jobs.settings.file import early_setting

VARIABLE = "TIDEMARK_PLUGINS"
"""The environment variable that names the folder; see `Settings.plugins`."""
FORMATS = ("csv", "json", "ndjson", "parquet")
"""The formats that ship."""
TRIGGER_NAMES = ("time", "count", "size", "rate_change", "memory_pressure", "end", "reset")
"""The reasons of emissions and of closed windows that ship."""


@dataclass(frozen=True)
class Plugins:
    """The declarations in the files of a folder: the signature of each aggregate and of each trigger of early results,
    the file of each aggregate, trigger and format, by name, and a line for each problem."""

    signatures: Mapping[str, Signature]
    aggregates: Mapping[str, Plugin]
    trigger_signatures: Mapping[str, Signature]
    triggers: Mapping[str, Plugin]
    formats: Mapping[str, Plugin]
    problems: tuple[str, ...] = ()


_NONE = Plugins({}, {}, {}, {}, {})
_READ: dict[Path, tuple[tuple[tuple[str, int, int], ...], Plugins]] = {}
"""The files of each folder when they were read (name, time, size), and their declarations."""


def plugins() -> Plugins:
    """The declarations in the folder that the setting `plugins` names now; none without a folder."""
    folder = early_setting("plugins")
    return read_plugins(Path(folder).expanduser()) if folder else _NONE


def read_plugins(folder: Path) -> Plugins:
    """Read the declarations in the Python files of a folder. A file that can't be imported is a problem, and declares
    nothing."""
    try:
        files = sorted(p for p in folder.iterdir() if p.suffix == ".py" and p.name[0] not in "._")
        stamps = tuple((p.name, (status := p.stat()).st_mtime_ns, status.st_size) for p in files)
    except OSError as error:
        return replace(_NONE, problems=(f"expected a folder of plugins ({VARIABLE}), found {error}",))
    if folder not in _READ or _READ[folder][0] != stamps:
        _READ[folder] = stamps, _read_declarations(files)
    return _READ[folder][1]


def _read_declarations(paths: list[Path]) -> Plugins:
    problems = list[str]()
    signatures, aggregates = dict[str, Signature](), dict[str, Plugin]()
    trigger_signatures, triggers = dict[str, Signature](), dict[str, Plugin]()
    formats = dict[str, Plugin]()
    for path in paths:
        try:
            plugin = Plugin(path.name, path.read_text(encoding="utf-8"))
            of_aggregates, of_triggers, of_formats = plugin.aggregates(), plugin.triggers(), plugin.formats()
        except Exception as error:
            problems.append(f"{path}: expected Python that can be imported, found {type(error).__name__}: {error}")
            continue
        for kind, names, shipped, taken in (
            ("aggregate", of_aggregates, AGGREGATES, aggregates),
            ("trigger", of_triggers, TRIGGER_NAMES, triggers),
            ("format", of_formats, FORMATS, formats),
        ):
            for name in names:
                if name in shipped or name in taken:
                    problems.append(f"{path}: expected a name that no other {kind} has, found {name}")
                else:
                    taken[name] = plugin
        signatures |= {name: of for name, of in of_aggregates.items() if aggregates.get(name) is plugin}
        trigger_signatures |= {name: of for name, of in of_triggers.items() if triggers.get(name) is plugin}
    return Plugins(signatures, aggregates, trigger_signatures, triggers, formats, tuple(problems))
