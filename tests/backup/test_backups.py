"""Backups of a lake that is made of Delta tables alone: what a set holds, what comes back, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import time_machine
from deltalake import DeltaTable, write_deltalake
from pydantic import SecretStr

from spark_jobs.backup import BackupDamaged, back_up, making, restore, verify
from spark_jobs.backup.capture import NoLake
from spark_jobs.backup.making import LandedFilesChanged
from spark_jobs.backup.restoring import HomeNotEmpty
from spark_jobs.backup.stores import Store
from spark_jobs.cli.app import run
from spark_jobs.config import Settings
from spark_jobs.storage.coordination.leases import SourceBusy, take
from spark_jobs.storage.delta.lake_files import LakeFiles
from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.delta.records import arrow_records
from spark_jobs.storage.delta.table_check import Damage, damaged_tables
from spark_jobs.storage.descriptions.tables import PUBLISHED
from spark_jobs.storage.names.shown_marts import ShownMarts, note_shown, shown_marts
from tests.jobs.harness import SOURCE

NOW = datetime(2024, 1, 2, tzinfo=UTC)
LANDED = "meters/2024-01-01/a.ndjson"
POINTER = "trace.db/published"
ROWS = "silver.db/hourly_history"
ODD = "gold.db/state_history"


def publish(settings: Settings, token: int) -> None:
    """Rows under a token, and the commit that publishes them."""
    lake = Path(settings.lake)
    write_deltalake(lake / ROWS, pa.table({"token": [token] * 3, "n": [1, 2, 3]}), mode="append")
    odd = pa.table({"batch": [f"{token} / ü%", "b"], "token": [token, token]})
    write_deltalake(lake / ODD, odd, mode="append", partition_by=["batch"])
    row = {"source": "meters", "token": token, "run_id": f"r{token}", "published": NOW, "reached": NOW, "complete": NOW}
    row |= {"settled": 0, "tokens": [token], "definition": "{}"}
    write_deltalake(lake / POINTER, arrow_records(PUBLISHED, [row]), mode="overwrite")


def content(settings: Settings) -> dict[str, Any]:
    """The rows of all tables, sorted."""
    found = {}
    for log in sorted(Path(settings.lake).glob("*.db/*/_delta_log")):
        rows = DeltaTable(log.parent).to_pyarrow_table().to_pylist()
        found[log.parent.name] = sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return found


def damage_in(settings: Settings, *, deep: bool) -> list[Damage]:
    """The damage of the tables of a home's lake."""
    lake = LakeFolder(settings.lake)
    return list(damaged_tables(lake, LakeFiles.of(lake), deep=deep))


def empty_home(tmp_path: Path, name: str = "other") -> Settings:
    home = tmp_path / name
    return Settings(home=home, sources=home / "sources", landing=home / "landing")


def test_a_set_comes_back_as_it_was(settings: Settings, tmp_path: Path) -> None:
    place, other = str(tmp_path / "backup"), empty_home(tmp_path)
    made = back_up(settings, place, landing=True).backup_set
    assert made.published["meters"]["token"] == 1
    assert made.tables[ROWS] == 0
    publish(settings, 2)
    back = restore(other, place)
    assert back.back.name == made.name
    assert content(other)["published"] != content(settings)["published"]
    assert len(content(settings)["hourly_history"]) == 6
    assert content(other)["hourly_history"] == [f'{{"n": {n}, "token": 1}}' for n in (1, 2, 3)]
    assert damage_in(other, deep=True) == []
    assert (other.sources / "meters.yml").read_text() == SOURCE
    assert (other.landing_folder / LANDED).read_text() == "a row\n"
    assert not (other.home / "restoring").exists()
    # the lake that came back is written on, and backed up in turn
    publish(other, 2)
    assert content(other) == content(settings)


def test_a_later_set_copies_what_is_new_and_both_come_back(settings: Settings, tmp_path: Path) -> None:
    place = str(tmp_path / "backup")
    first = back_up(settings, place)
    before = content(settings)
    assert first.copied_files == len({file.stored for file in first.backup_set.files})
    again = back_up(settings, place)
    assert (again.copied_files, len(again.backup_set.files)) == (0, len(first.backup_set.files))
    publish(settings, 2)
    second = back_up(settings, place)
    new = {file.stored for file in second.backup_set.files} - {file.stored for file in first.backup_set.files}
    assert second.copied_files == len(new) > 0
    restore(empty_home(tmp_path, "newest"), place)
    restore(empty_home(tmp_path, "oldest"), place, first.backup_set.name)
    assert content(empty_home(tmp_path, "newest")) == content(settings)
    assert content(empty_home(tmp_path, "oldest")) == before


@pytest.mark.parametrize("days", [-400, 4000])
def test_the_newest_set_is_the_one_made_last_whatever_the_clock_says(
    settings: Settings, tmp_path: Path, days: int
) -> None:
    place = str(tmp_path / "backup")
    back_up(settings, place)
    for token, off in ((2, timedelta(days=days)), (3, timedelta())):
        publish(settings, token)
        with time_machine.travel(datetime.now(UTC) + off):
            made = back_up(settings, place).backup_set
        back = restore(empty_home(tmp_path, f"after-{token}"), place)
        assert back.back.name == made.name
        assert content(empty_home(tmp_path, f"after-{token}")) == content(settings)


def test_a_log_with_a_checkpoint_comes_back_without_what_was_before_it(settings: Settings, tmp_path: Path) -> None:
    place, other = str(tmp_path / "backup"), empty_home(tmp_path)
    for token in range(2, 6):
        publish(settings, token)
    DeltaTable(Path(settings.lake) / ROWS).create_checkpoint()
    publish(settings, 6)
    back_up(settings, place)
    restore(other, place)
    assert content(other) == content(settings)
    assert not (Path(other.lake) / ROWS / "_delta_log" / f"{0:020}.json").exists()
    assert damage_in(other, deep=False) == []


def test_what_a_run_writes_meanwhile_is_not_in_the_set(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, other, before = str(tmp_path / "backup"), empty_home(tmp_path), content(settings)
    pending, write = [2, 3], Store.write

    def write_beside_a_run(store: Store, path: str, pieces: Any) -> str:
        if pending:
            publish(settings, pending.pop(0))
        return write(store, path, pieces)

    monkeypatch.setattr(making, "map_requests", map)
    monkeypatch.setattr(Store, "write", write_beside_a_run)
    back_up(settings, place)
    assert not pending
    restore(other, place)
    assert content(other) == before


def test_a_set_begins_anew_where_a_table_was_vacuumed_meanwhile(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, other, write = str(tmp_path / "backup"), empty_home(tmp_path), Store.write
    done: list[str] = []

    def write_beside_a_vacuum(store: Store, path: str, pieces: Any) -> str:
        if not done:
            done.append(path)
            table = DeltaTable(Path(settings.lake) / ROWS)
            write_deltalake(table, table.to_pyarrow_table(), mode="overwrite")
            DeltaTable(table.table_uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
        return write(store, path, pieces)

    monkeypatch.setattr(making, "map_requests", map)
    monkeypatch.setattr(Store, "write", write_beside_a_vacuum)
    back_up(settings, place)
    restore(other, place)
    assert content(other) == content(settings)


def test_a_stage_at_work_is_waited_for(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.backup.capture.WAIT_S", 0)
    leases = settings.home / "leases"
    with (
        take(leases, source="meters", run_id="r", starts_run=True, wait_s=0),
        pytest.raises(SourceBusy, match="run r at work"),
    ):
        back_up(settings, str(tmp_path / "backup"))
    assert back_up(settings, str(tmp_path / "backup")).copied_files


@pytest.mark.parametrize("damage", ["missing", "other", "shorter"])
def test_a_damaged_backup_is_named_and_not_restored(settings: Settings, tmp_path: Path, damage: str) -> None:
    place, other = tmp_path / "backup", empty_home(tmp_path)
    made = back_up(settings, str(place)).backup_set
    assert verify(settings, str(place)).damaged == {}
    victim = next(file for file in made.files if file.path.startswith(ROWS) and file.stored.startswith("data/"))
    path = place / victim.stored
    if damage == "missing":
        path.unlink()
    elif damage == "other":
        data = bytearray(path.read_bytes())
        data[20] ^= 1
        path.write_bytes(data)
    else:
        os.truncate(path, victim.size - 1)
    told = {"missing": "is missing", "other": "other bytes", "shorter": f"has {victim.size - 1} bytes"}[damage]
    found = verify(settings, str(place)).damaged
    assert list(found) == [victim.stored] and told in found[victim.stored]
    with pytest.raises(BackupDamaged, match="1 missing or with other bytes"):
        restore(other, str(place))
    assert not (Path(other.lake) / POINTER / "_delta_log").exists()
    # the next set mends what can be seen by its size, and an earlier attempt to restore goes on
    if damage != "other":
        back_up(settings, str(place))
        assert verify(settings, str(place)).damaged == {}
        restore(other, str(place), made.name)
        assert content(other) == content(settings)


def test_an_interrupted_restore_goes_on(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, other = str(tmp_path / "backup"), empty_home(tmp_path)
    back_up(settings, place)
    write, left = Store.write, [4]

    def write_until_the_end(store: Store, path: str, pieces: Any) -> str:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return write(store, path, pieces)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", write_until_the_end)
        with pytest.raises(KeyboardInterrupt):
            restore(other, place)
    restore(other, place)
    assert content(other) == content(settings)
    # one that was killed as it ended has told nobody, so the same command comes again
    assert restore(other, place).files > 0
    assert content(other) == content(settings)
    publish(other, 9)
    with pytest.raises(HomeNotEmpty, match="nothing was restored"):
        restore(other, place)


def test_a_home_that_is_not_empty_is_left_alone(settings: Settings, tmp_path: Path) -> None:
    place, other = str(tmp_path / "backup"), empty_home(tmp_path)
    back_up(settings, place)
    publish(settings, 9)
    with pytest.raises(HomeNotEmpty, match="nothing was restored"):
        restore(settings, place)
    other.sources.mkdir(parents=True)
    (other.sources / "meters.yml").write_text("another source")
    with pytest.raises(HomeNotEmpty, match="with other content"):
        restore(other, place)
    assert not Path(other.lake).exists()


def test_a_backup_holds_the_sets_of_one_lake(settings: Settings, tmp_path: Path) -> None:
    place, other = str(tmp_path / "backup"), empty_home(tmp_path)
    publish(settings, 5)
    back_up(settings, place)
    publish(settings, 1)
    with pytest.raises(BackupDamaged, match="under token 5, here under 1"):
        back_up(settings, place)
    with pytest.raises(NoLake):
        back_up(other, place)
    with pytest.raises(BackupDamaged, match="the set nothing in"):
        restore(other, place, "nothing")
    with pytest.raises(BackupDamaged, match="a set in"):
        restore(other, str(tmp_path / "nowhere"))


def with_own_folders(settings: Settings, tmp_path: Path) -> tuple[Settings, dict[str, Path]]:
    """The settings with plugins, expectations, dbt models, an environment and a query; the folders by their parts."""
    folders = {part: tmp_path / "öwn of us" / part for part in ("plugins", "expectations", "dbt")}
    own = settings.model_copy(update=folders)
    folders |= {part: settings.home / part for part in ("environments", "queries")}
    files = {
        "plugins": ["divisors.py", "dags/after.py", "dags/__pycache__/after.cpython.pyc", ".git/HEAD"],
        "expectations": ["README.md", "even.py", "suite.json"],
        "dbt": ["models/ours.sql", "models/deep/ours.yml"],
        "environments": ["trial/meters.yml", "trial/built/meters.json"],
        "queries": ["by hour.sql"],
    }
    for part, paths in files.items():
        for path in paths:
            file = folders[part] / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{part}: {path}")
    return own, folders


def test_what_sources_need_beside_their_files_comes_back(settings: Settings, tmp_path: Path) -> None:
    place = tmp_path / "backup"
    own, _ = with_own_folders(settings, tmp_path)
    (own.sources / "others.yaml").write_text("another ending")
    shown = ShownMarts(7, "a project", {"meter_hours": 3})
    note_shown(own.home, "meters", shown)
    made = back_up(own, str(place)).backup_set
    folders = {part: tmp_path / "new" / part for part in ("plugins", "expectations", "dbt")}
    there = empty_home(tmp_path).model_copy(update=folders)
    done = restore(there, str(place))
    assert done.to_set == {}
    folders |= {part: there.home / part for part in ("environments", "queries")}
    back = {
        f"{part}/{file.relative_to(folder).as_posix()}": file.read_text()
        for part, folder in folders.items()
        for file in folder.rglob("*")
        if file.is_file()
    }
    assert back == {
        "plugins/divisors.py": "plugins: divisors.py",
        "plugins/dags/after.py": "plugins: dags/after.py",
        "expectations/even.py": "expectations: even.py",
        "expectations/suite.json": "expectations: suite.json",
        "dbt/models/ours.sql": "dbt: models/ours.sql",
        "dbt/models/deep/ours.yml": "dbt: models/deep/ours.yml",
        "environments/trial/meters.yml": "environments: trial/meters.yml",
        "environments/trial/built/meters.json": "environments: trial/built/meters.json",
        "queries/by hour.sql": "queries: by hour.sql",
    }
    assert (there.sources / "others.yaml").read_text() == "another ending"
    assert shown_marts(there.home, "meters") == shown
    plugin = next(file for file in made.files if file.path == "divisors.py")
    (place / plugin.stored).write_text("plugins: DIVISORS.py")
    assert "other bytes" in verify(own, str(place)).damaged[plugin.stored]


def test_what_no_setting_has_a_folder_for_comes_into_the_home_and_is_told(settings: Settings, tmp_path: Path) -> None:
    place, other = str(tmp_path / "backup"), empty_home(tmp_path)
    own, _ = with_own_folders(settings, tmp_path)
    back_up(own, place)
    other = other.model_copy(update={"expectations": other.home / "expectations"})
    done = restore(other, place)
    assert {name: Path(folder).is_relative_to(other.home) for name, folder in done.to_set.items()} == {
        "TIDEMARK_PLUGINS": True,
        "TIDEMARK_DBT": True,
    }
    assert (Path(done.to_set["TIDEMARK_PLUGINS"]) / "dags" / "after.py").exists()
    assert (Path(done.to_set["TIDEMARK_DBT"]) / "models" / "ours.sql").exists()
    # with these settings the home that came back is backed up as the first was
    again = other.model_copy(
        update={name: Path(done.to_set[f"TIDEMARK_{name.upper()}"]) for name in ("plugins", "dbt")}
    )
    first, second = (
        {(file.part, file.path): file.checksum for file in back_up(each, str(tmp_path / name)).backup_set.files}
        for each, name in ((own, "one"), (again, "two"))
    )
    assert second == first


def test_settings_that_were_otherwise_are_named(settings: Settings, tmp_path: Path) -> None:
    place = str(tmp_path / "backup")
    own, folders = with_own_folders(settings, tmp_path)
    own = own.model_copy(update={"heap": "7g", "token": SecretStr("a secret")})
    back_up(own, place)
    other = empty_home(tmp_path).model_copy(update={"expectations": folders["expectations"], "thrift_port": 12345})
    done = restore(other, place)
    # nothing of what only follows from another home
    assert done.other_settings == {
        "TIDEMARK_HEAP": ("7g", "3g"),
        "TIDEMARK_THRIFT_PORT": (10000, 12345),
        "TIDEMARK_PLUGINS": (str(folders["plugins"]), None),
        "TIDEMARK_DBT": (str(folders["dbt"]), None),
    }


def test_the_restore_says_what_to_set(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place, home = str(tmp_path / "backup"), tmp_path / "other"
    own, folders = with_own_folders(settings, tmp_path)
    back_up(own, place)
    for name, value in {"HOME": home, "SOURCES": home / "sources", "EXPECTATIONS": home / "expectations"}.items():
        monkeypatch.setenv(f"TIDEMARK_{name}", str(value))
    assert run(["restore", place]) == 0
    # wrapped where a terminal ends
    told = "".join(capsys.readouterr().err.split())
    assert f"setTIDEMARK_PLUGINS={home}/own/plugins" in told
    assert f'TIDEMARK_DBTwas"{"".join(str(folders["dbt"]).split())}"wherethebackupwasmade,andisnotsethere' in told


def test_a_plugin_that_is_there_with_other_content_is_left_alone(settings: Settings, tmp_path: Path) -> None:
    place, other = str(tmp_path / "backup"), empty_home(tmp_path)
    own, folders = with_own_folders(settings, tmp_path)
    back_up(own, place)
    (folders["plugins"] / "divisors.py").write_text("changed since")
    with pytest.raises(HomeNotEmpty, match=r"divisors\.py, with other content"):
        restore(other.model_copy(update={part: folders[part] for part in ("plugins", "expectations", "dbt")}), place)
    assert (folders["plugins"] / "divisors.py").read_text() == "changed since"


def test_landed_files_are_those_that_landed(settings: Settings, tmp_path: Path) -> None:
    place = str(tmp_path / "backup")
    (settings.landing_folder / LANDED).write_text("a now\n")
    with pytest.raises(LandedFilesChanged, match="1 gone or changed"):
        back_up(settings, place, landing=True)
    back_up(settings, place)
    shutil.rmtree(settings.landing_folder)
    back_up(settings, place)
    restore(empty_home(tmp_path), place)
