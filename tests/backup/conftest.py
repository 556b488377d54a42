"""A home to back up."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import write_deltalake

from spark_jobs.backup.stores import Store
from spark_jobs.config import Settings
from spark_jobs.storage.delta.records import arrow_records
from spark_jobs.storage.descriptions.tables import FILES
from tests.backup.test_backups import LANDED, publish
from tests.jobs.harness import SOURCE


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A home with a source, a landed file, and a lake with what is published of it."""
    home = tmp_path / "höme"
    made = Settings(home=home, sources=home / "sources", landing=home / "landing")
    (home / "sources").mkdir(parents=True)
    (home / "sources" / "meters.yml").write_text(SOURCE)
    file = made.landing_folder / LANDED
    file.parent.mkdir(parents=True)
    file.write_text("a row\n")
    landed = {"source": "meters", "landing": 1, "path": LANDED, "checksum": Store.at(file.parent).checksum(file.name)}
    landed |= {"bytes": 6, "version": "landed", "seq_no": 0}
    write_deltalake(Path(made.lake) / "bronze.db" / "files", arrow_records(FILES, [landed]))
    publish(made, 1)
    return made
