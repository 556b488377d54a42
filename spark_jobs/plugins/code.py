"""The text of a plugin's file, as it travels to workers, and the module that it is in the process that uses it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from threading import RLock
from types import ModuleType
from typing import Any, Literal

from spark_jobs.aggregates import Signature

AGGREGATE, FORMAT, TRIGGER = "tidemark_aggregate", "tidemark_format", "tidemark_trigger"
"""The attributes of declared objects: an aggregate's or a trigger's `Signature`, a format's name."""
_LOADING = RLock()


@dataclass(frozen=True)
class Plugin:
    """A Python file of the folder of plugins: its name, and its text."""

    file: str
    text: str

    @cached_property
    def digest(self) -> str:
        """A hash of the text: other text may compute something else."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    @property
    def module(self) -> ModuleType:
        """The file as a module, which is imported once in a process. Raises whatever importing it raises."""
        name = f"tidemark_plugin_{self.file.removesuffix('.py')}_{self.digest}"
        with _LOADING:
            if name in sys.modules:
                return sys.modules[name]
            spec = spec_from_loader(name, _Text(self))
            assert spec is not None and spec.loader is not None, "a loader was given"
            module = module_from_spec(spec)
            sys.modules[name] = module
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[name]
                raise
            return module

    def aggregates(self) -> dict[str, Signature]:
        """The aggregates that it declares, by name."""
        return self._signatures(AGGREGATE)

    def triggers(self) -> dict[str, Signature]:
        """The triggers of early results that it declares, by name."""
        return self._signatures(TRIGGER)

    def formats(self) -> list[str]:
        """The formats that it declares."""
        return self._declarations(FORMAT)

    def constructor(self, function: str) -> Callable[..., Any]:
        """The declared object that makes the aggregate of this name."""
        return self._objects(AGGREGATE)[self.aggregates()[function]]

    def trigger_constructor(self, function: str) -> Callable[..., Any]:
        """The declared object that makes the trigger of this name."""
        return self._objects(TRIGGER)[self.triggers()[function]]

    def parser(self, name: str) -> Callable[..., Any]:
        """The function that reads files of this format."""
        return self._objects(FORMAT)[name]

    def _signatures(self, kind: str) -> dict[str, Signature]:
        return {of.call.partition("(")[0]: of for of in self._declarations(kind)}

    def _declarations(self, kind: str) -> list[Any]:
        return list(self._objects(kind))

    def _objects(self, kind: str) -> Mapping[Any, Any]:
        values = vars(self.module).values()
        # what another file declared is no concern of this one, though it was imported from there
        return {vars(value)[kind]: value for value in values if kind in getattr(value, "__dict__", {})}


@dataclass(frozen=True)
class Parser:
    """The reader of a format that a plugin declares."""

    plugin: Plugin
    name: str

    @property
    def function(self) -> Callable[[Iterator[bytes]], Iterable[Any]]:
        """Blocks of bytes to records."""
        return self.plugin.parser(self.name)


Format = Literal["csv", "json", "ndjson", "parquet"] | Parser
"""The format of a landed file: a built-in one by name, or the parser of a plugin."""


class _Text(SourceLoader):
    """Imports a text that is in memory."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    def get_filename(self, fullname: str) -> str:
        return self._plugin.file

    def get_data(self, path: str) -> bytes:
        if path != self._plugin.file:
            raise OSError(path)  # there is no compiled file
        return self._plugin.text.encode()
