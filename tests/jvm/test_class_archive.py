"""The archive of Java's classes: a lake server leaves one, the next one reads it, and nothing needs it."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import psutil
import pytest

from spark_jobs.jvm.class_archive import class_archive, draft_of, keep, note_use, options_to_read, options_to_write
from spark_jobs.session import archive_of, first_jars
from tests.installations import ODD_NAME, TIDEMARK, Installation, until

JAVA = """#!/bin/sh
case "$*" in *ArchiveClassesAtExit*) exit {code};; esac
"""


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A program in place of Java that starts whatever its options are."""
    return java_that(tmp_path, 0)


def java_that(folder: Path, code: int) -> Path:
    """One that ends with a code where it shall write an archive."""
    program = folder / f"java{code}"
    program.write_text(JAVA.format(code=code))
    program.chmod(0o700)
    return program


def there(file: Path) -> Path:
    """The file, as Java and nobody else has written it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.parent.chmod(0o700)
    file.write_text("classes")
    if file.suffix == ".jsa":
        file.with_suffix(".crc32").write_text(f"{zlib.crc32(b'classes'):08x}")
    file.chmod(0o400)
    return file


def file_of(folder: Path, java: Path, *jars: Path, heap: str = "2g") -> Path:
    found = class_archive([folder], java, jars, heap)
    assert found is not None
    return found


def test_another_jar_java_or_size_of_pointers_is_another_archive(tmp_path: Path, java: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_text("jar")
    first = file_of(tmp_path, java, jar)
    assert first == file_of(tmp_path, java, jar) == file_of(tmp_path, java, jar, heap="20480m")
    others = [file_of(tmp_path, java, jar, heap=heap) for heap in ("32g", "40000M", "40000000000")]
    assert {*others} == {others[0]}
    os.utime(jar, (1, 1))
    second = file_of(tmp_path, java, jar)
    java.write_text("another java")
    third = file_of(tmp_path, java, jar)
    fourth = file_of(tmp_path, java, jar, tmp_path / "missing.jar", jar)
    assert len({first, second, third, fourth, others[0]}) == 5


def test_there_is_none_where_pyspark_is_an_archive_itself(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__file__", str(tmp_path / "pyspark.zip" / "pyspark" / "__init__.py"))
    assert options_to_read(file_of(tmp_path, java)) == ""


def test_options_read_what_is_there_and_write_what_is_not(tmp_path: Path, java: Path) -> None:
    archive = file_of(tmp_path / "classes", java)
    draft = draft_of(archive, tmp_path)
    assert options_to_read(archive) == ""
    assert f'"-XX:ArchiveClassesAtExit={draft}"' in options_to_write(archive, tmp_path, java, "-Xss4m")
    there(draft)
    keep(archive, tmp_path)
    assert archive == file_of(tmp_path / "classes", java)
    assert archive.read_text() == "classes"
    assert options_to_write(archive, tmp_path, java, "") == ""
    assert f'"-XX:SharedArchiveFile={archive}"' in options_to_read(archive)


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied", "without its sum"])
def test_an_archive_that_a_disk_has_damaged_is_written_anew(tmp_path: Path, java: Path, damage: str) -> None:
    archive = file_of(tmp_path / "classes", java)
    there(draft_of(archive, tmp_path))
    keep(archive, tmp_path)
    assert options_to_read(archive) != ""
    archive.chmod(0o600)
    content = {"cut": "class", "changed": "clasSes", "emptied": ""}.get(damage)
    if content is None:
        archive.with_suffix(".crc32").unlink()
    else:
        archive.write_text(content)
    assert file_of(tmp_path / "classes", java) == archive
    assert options_to_read(archive) == ""
    assert "ArchiveClassesAtExit" in options_to_write(archive, tmp_path, java, "")


def test_a_java_that_does_not_start_so_is_not_started_so(tmp_path: Path) -> None:
    refusing = java_that(tmp_path, 1)
    assert options_to_write(file_of(tmp_path / "classes", refusing), tmp_path, refusing, "") == ""
    gone = tmp_path / "gone"
    assert options_to_write(file_of(tmp_path / "classes", gone), tmp_path, gone, "") == ""


def test_what_others_could_have_written_is_neither_read_nor_written(tmp_path: Path, java: Path) -> None:
    shared, home = tmp_path / "shared", tmp_path / "home" / "classes"
    home.parent.mkdir()

    def found() -> Path | None:
        return class_archive([shared, home], java, [], "2g")

    planted = there(shared / file_of(tmp_path, java).name)
    assert found() == planted
    planted.chmod(0o666)
    assert found() == home / planted.name
    planted.chmod(0o400)
    shared.chmod(0o777)
    assert found() == home / planted.name
    own = there(home / planted.name)
    assert found() == own
    home.chmod(0o770)
    assert found() is None
    shared.chmod(0o700)
    assert found() == planted


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_an_archive_of_another_user_is_left_alone(tmp_path: Path, java: Path) -> None:
    planted = there(tmp_path / "shared" / file_of(tmp_path, java).name)
    os.chown(planted, 65534, 65534)
    assert class_archive([planted.parent, tmp_path / "own"], java, [], "2g") == tmp_path / "own" / planted.name


def test_nothing_is_written_where_nothing_may_be(tmp_path: Path, java: Path) -> None:
    (tmp_path / "file").write_text("")
    assert class_archive([tmp_path / "file" / "classes", tmp_path / "no" / "classes"], java, [], "2g") is None
    assert (options_to_read(None), options_to_write(None, tmp_path, java, "")) == ("", "")
    keep(None, tmp_path)
    note_use(None)


def test_a_server_that_was_killed_leaves_no_archive(tmp_path: Path) -> None:
    archive = tmp_path / "a.jsa"
    keep(archive, tmp_path)
    assert not archive.exists()


def test_archives_that_were_used_longest_ago_and_abandoned_drafts_go(tmp_path: Path) -> None:
    for age in range(5):
        older = there(tmp_path / f"{age}.jsa")
        os.utime(older, (1000 - age, 1000 - age))
    note_use(tmp_path / "4.jsa")
    archive = tmp_path / "new.jsa"
    ours, under_way, abandoned = (there(draft_of(archive, Path(home))) for home in "abc")
    os.utime(abandoned, (1, 1))
    keep(archive, Path("a"))
    assert not ours.exists()
    kept = {f"{name}.{kind}" for name in ("new", "4", "0") for kind in ("jsa", "crc32")}
    assert {file.name for file in tmp_path.iterdir()} == {*kept, under_way.name}


@pytest.mark.server
@pytest.mark.turns
def test_a_lake_server_leaves_an_archive_and_the_next_one_reads_it(tmp_path: Path) -> None:
    installation = Installation(tmp_path / ODD_NAME)
    settings = installation.settings
    settings.home.mkdir()
    archive = archive_of(settings, first_jars(settings))
    assert archive is not None
    if not archive.exists():
        with installation.serving("--no-airflow"):
            pass
        # Java writes it when `down` has returned
        until(archive.exists, 120, "Java wrote no archive")
    with installation.serving("--no-airflow"):
        lake = installation.json("status")["parts"]["lake"]
        mapped = {file.path for file in psutil.Process(lake["pid"]).memory_maps()}
        assert str(archive) in mapped
    log = (settings.logs_dir / "lake.log").read_text()
    # of the settings that are named by a property, in a folder that a URI has to escape
    assert "Using Spark's default log4j profile" not in log
    assert installation.run(str(TIDEMARK), "status").returncode != 0
