"""Sources that are renamed, reset and dropped by the commands of a user, and what an archive brings back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.installations import ODD_NAME, TIDEMARK, Installation
from tests.jobs.harness import SOURCE, Reading, write_drops

pytestmark = [pytest.mark.server, pytest.mark.turns(together=True), pytest.mark.timeout(900)]

NIGHT = 24 * 60
DAYS = ("--from", "2024-01-01", "--to", "2024-01-02")
READINGS = [Reading(0, 10 + 7 * i, "xyz"[i % 3], i) for i in range(9)] + [Reading(1, 30, "x", 5)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A home whose source has published two drops. The last test ends it."""
    installed = home(tmp_path_factory.mktemp("sources") / ODD_NAME)
    with installed.serving("--no-airflow"):
        installed.settings.sources.mkdir()
        (installed.settings.sources / "meters.yml").write_text(SOURCE)
        write_drops(installed.settings, READINGS)
        installed.json("run", "meters", *DAYS)
        yield installed


def home(folder: Path) -> Installation:
    """An installation whose source files and landing folder are in its home."""
    folder.mkdir()
    return Installation(folder, sources=folder / "sources", landing=folder / "landing")


def publishes(installed: Installation, source: str) -> bool:
    """Run the days; whether that published anything."""
    return bool(installed.json("run", source, *DAYS)["stages"][-1]["moved"])


def published(installed: Installation, source: str) -> list[Any]:
    """What people read of the source."""
    names = ("silver.hourly", "silver.shifts", f"gold.{source}")
    return [sorted(map(repr, installed.sql(f"SELECT * FROM {name}"))) for name in names]


def test_a_source_is_reset_and_run_again(installed: Installation) -> None:
    before = published(installed, "meters")
    installed.json("source", "reset", "meters", "--purge")
    assert (installed.settings.sources / "meters.yml").exists()
    assert installed.sql("SELECT source FROM bronze.files UNION SELECT source FROM trace.publications") == []
    assert publishes(installed, "meters")
    assert published(installed, "meters") == before
    doctor = installed.run(str(TIDEMARK), "doctor")
    assert doctor.returncode == 0, doctor.stdout


def test_a_source_is_renamed_archived_and_brought_back(installed: Installation, tmp_path: Path) -> None:
    before, sets = published(installed, "meters"), tmp_path / "séts of 2024"
    for refused in (("rename", "meters", "Zähler"), ("drop", "meters", "--purge", "--archive", str(sets))):
        assert installed.run(str(TIDEMARK), "source", *refused).returncode == 2
    planned = installed.json("source", "rename", "meters", "gauges", "--dry-run")
    assert published(installed, "meters") == before
    assert installed.json("source", "rename", "meters", "gauges")["tables"] == planned["tables"]
    assert published(installed, "gauges") == before
    assert not publishes(installed, "gauges")

    assert installed.json("source", "drop", "gauges")["done"] is False
    assert published(installed, "gauges") == before
    dropped = installed.json("source", "drop", "gauges", "--archive", str(sets))
    assert (dropped["done"], dropped["archive"]) == (True, str(sets))
    assert list(installed.settings.sources.iterdir()) == []
    assert installed.sql("SELECT source FROM bronze.files UNION SELECT source FROM trace.publications") == []
    refusal = installed.run(str(TIDEMARK), "sql", "SELECT * FROM gold.gauges")
    assert refusal.returncode != 0 and "Traceback" not in refusal.stdout + refusal.stderr
    installed.run(str(TIDEMARK), "down")

    restored = home(tmp_path / "restored")
    assert restored.run(str(TIDEMARK), "restore", str(sets)).returncode == 0
    shutil.copytree(installed.settings.landing, restored.settings.landing, dirs_exist_ok=True)
    with restored.serving("--no-airflow"):
        assert restored.run(str(TIDEMARK), "doctor", "--repair").returncode == 0
        assert published(restored, "gauges") == before
        write_drops(restored.settings, [Reading(1, NIGHT + 5, "x", 7)])
        assert publishes(restored, "gauges")
        assert restored.run(str(TIDEMARK), "audit", "gauges").returncode == 0
