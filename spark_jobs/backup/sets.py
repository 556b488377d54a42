"""A set: what a backup holds of one instant, as one JSON file beside the files that it lists."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_jobs.backup.stores import Store
from spark_jobs.errors import TidemarkError

SETS = "sets"
DATA, OBJECTS = "data", "objects"
"""Folders of a backup: data files of tables by their own paths, everything else by its SHA-256."""
LAKE, SOURCES, LANDING = "lake", "sources", "landing"
PLUGINS, EXPECTATIONS, DBT, ENVIRONMENTS = "plugins", "expectations", "dbt", "environments"
SHOWN_MARTS = "shown_marts"
"""What a file of a set belongs to."""


class BackupDamaged(TidemarkError):
    """A backup lacks a set or files of one, or files of it are not what was backed up. Facts: `place`, `files`."""

    code = "backup_damaged"


@dataclass(frozen=True, slots=True)
class Kept:
    """One file: what it belongs to, its path there, its bytes and SHA-256, and where the backup has it."""

    part: str
    path: str
    size: int
    checksum: str
    stored: str


@dataclass(frozen=True, slots=True)
class BackupSet:
    """All files of one instant. `tables`: table (database/name) -> version. `published`: source -> what was in force.
    `settings` are for people: knob -> value, without secrets."""

    name: str
    made_at: str
    lake: str
    tables: dict[str, int]
    published: dict[str, dict[str, Any]]
    files: list[Kept]
    settings: dict[str, Any] = field(default_factory=dict)

    def of(self, part: str) -> list[Kept]:
        """Its files of one part."""
        return [file for file in self.files if file.part == part]

    def write(self, store: Store) -> None:
        """Make the set count: its files are there."""
        document = json.dumps(asdict(self), indent=1, sort_keys=True)
        store.write(f"{SETS}/{self.name}.json", iter([document.encode()]))

    @classmethod
    def names(cls, store: Store) -> list[str]:
        """The sets of a backup, oldest first."""
        names = [path.rsplit("/", 1)[-1] for path in store.sizes(SETS)]
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

    @classmethod
    def read(cls, store: Store, name: str | None) -> BackupSet:
        """The set of this name, or the newest.

        Raises:
            BackupDamaged: there is none, or its list cannot be read.
        """
        names = cls.names(store)
        if not names or (name is not None and name not in names):
            raise BackupDamaged(
                expected=f"the set {name} in {store.place}" if name else f"a set in {store.place}",
                found=f"the sets {', '.join(names)}" if names else "none",
                next_step="name one of them with --set" if names else "name the place that `tidemark backup` wrote to",
                place=store.place,
                files=[],
            )
        path = f"{SETS}/{name or names[-1]}.json"
        try:
            document = json.loads(store.read(path))
            return cls(**{**document, "files": [Kept(**file) for file in document["files"]]})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BackupDamaged(
                expected=f"the list of a set in {path}",
                found=f"{type(error).__name__}: {error}",
                next_step="restore an earlier set with --set",
                place=store.place,
                files=[path],
            ) from None
