"""The archive of Java's classes: a lake server leaves one, the next one reads it, and nothing needs it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from spark_jobs.server.class_archive import class_archive, draft_of, keep, reading, writing
from spark_jobs.session import archive_of, first_jars
from tests.installations import ODD_NAME, TIDEMARK, Installation


def test_another_jar_or_java_is_another_archive(tmp_path: Path) -> None:
    java, jar = tmp_path / "java", tmp_path / "a.jar"
    java.write_text("java")
    jar.write_text("jar")
    first = class_archive(tmp_path, java, [jar])
    assert first == class_archive(tmp_path, java, [jar])
    os.utime(jar, (1, 1))
    second = class_archive(tmp_path, java, [jar])
    java.write_text("another java")
    third = class_archive(tmp_path, java, [jar])
    fourth = class_archive(tmp_path, java, [jar, tmp_path / "missing.jar", java])
    assert len({first, second, third, fourth}) == 4


def test_there_is_none_where_pyspark_is_an_archive_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "java").write_text("java")
    monkeypatch.setattr("pyspark.__file__", str(tmp_path / "pyspark.zip" / "pyspark" / "__init__.py"))
    assert reading(class_archive(tmp_path, tmp_path / "java", [])) == ""


def test_options_read_what_is_there_and_write_what_is_not(tmp_path: Path) -> None:
    archive = tmp_path / "classes" / "a.jsa"
    draft = draft_of(archive, tmp_path)
    assert reading(archive) == ""
    assert f'"-XX:ArchiveClassesAtExit={draft}"' in writing(archive, draft)
    draft.write_text("classes")
    keep(archive, draft)
    assert archive.read_text() == "classes"
    assert writing(archive, draft) == ""
    assert f'"-XX:SharedArchiveFile={archive}"' in reading(archive)


def test_nothing_is_written_where_nothing_may_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    archive = tmp_path / "file" / "a.jsa"
    assert writing(archive, draft_of(archive, tmp_path)) == ""
    keep(archive, draft_of(archive, tmp_path))


def test_a_server_that_was_killed_leaves_no_archive(tmp_path: Path) -> None:
    archive = tmp_path / "a.jsa"
    keep(archive, draft_of(archive, tmp_path))
    assert not archive.exists()


def test_the_oldest_archives_and_the_drafts_of_others_go(tmp_path: Path) -> None:
    for age in range(5):
        older = tmp_path / f"{age}.jsa"
        older.write_text("")
        os.utime(older, (1000 - age, 1000 - age))
    archive = tmp_path / "new.jsa"
    others, ours, of_another = (draft_of(archive, Path(home)) for home in "abc")
    of_another = draft_of(tmp_path / "else.jsa", Path("c"))
    for draft in (others, ours, of_another):
        draft.write_text("")
    keep(archive, ours)
    assert {file.name for file in tmp_path.iterdir()} == {"new.jsa", "0.jsa", "1.jsa", of_another.name}


@pytest.mark.server
def test_a_lake_server_leaves_an_archive_and_the_next_one_reads_it(tmp_path: Path) -> None:
    installation = Installation(tmp_path / ODD_NAME)
    settings = installation.settings
    archive = archive_of(settings, first_jars(settings))
    if not archive.exists():
        with installation.serving("--no-airflow"):
            pass
    assert archive.exists()
    with installation.serving("--no-airflow"):
        lake = installation.json("status")["parts"]["lake"]
        mapped = {file.path for file in psutil.Process(lake["pid"]).memory_maps()}
        assert str(archive) in mapped
    log = (settings.logs_dir / "lake.log").read_text()
    # of the settings that are named by a property, in a folder that a URI has to escape
    assert "Using Spark's default log4j profile" not in log
    assert installation.run(str(TIDEMARK), "status").returncode != 0
