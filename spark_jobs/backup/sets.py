"""A set: the list of the files that a backup has of one instant, as one JSON file beside these files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_jobs.backup.stores import Store
from spark_jobs.errors import TidemarkError

SETS = "sets"
DATA, OBJECTS = "data", "objects"
"""The folders of a backup: data files of tables by their own paths, and all other files by their SHA-256."""
LAKE, SOURCES, LANDING = "lake", "sources", "landing"
PLUGINS, EXPECTATIONS, DBT, ENVIRONMENTS = "plugins", "expectations", "dbt", "environments"
SHOWN_MARTS = "shown_marts"
"""The parts of a set, with the names above: each file of a set belongs to one of them."""


class BackupDamaged(TidemarkError):
    """A backup lacks a set or files of a set, or some of its files differ from those that were backed up. Facts:
    `place`, `files`."""

    code = "backup_damaged"


@dataclass(frozen=True, slots=True)
class Kept:
    """One file: its part, its path in the part, its bytes and SHA-256, and its path in the backup."""

    part: str
    path: str
    size: int
    checksum: str
    stored: str


@dataclass(frozen=True, slots=True)
class BackupSet:
    """All files of one instant. `tables`: the version of each table (database/name). `published`: the publication in
    force of each source. `settings` are for people: the value of each knob, without secrets."""

    name: str
    made_at: str
    lake: str
    tables: dict[str, int]
    published: dict[str, dict[str, Any]]
    files: list[Kept]
    settings: dict[str, Any] = field(default_factory=dict)

    def of(self, part: str) -> list[Kept]:
        """The set's files of one part."""
        return [file for file in self.files if file.part == part]

    def write(self, store: Store) -> None:
        """Write the list, which makes the set count. Its files must have been written before."""
        document = json.dumps(asdict(self), indent=1, sort_keys=True)
        store.write(f"{SETS}/{self.name}.json", iter([document.encode()]))

    @classmethod
    def names(cls, store: Store) -> list[str]:
        """The names of a backup's sets, oldest first."""
        names = [path.rsplit("/", 1)[-1] for path in store.sizes(SETS)]
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

    @classmethod
    def read(cls, store: Store, name: str | None) -> BackupSet:
        """The set of this name, or the newest if it is None.

        Raises:
            BackupDamaged: there is no such set, or its list cannot be read.
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
