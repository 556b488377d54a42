"""Java, ports, jars and the code's version: what `up` looks at before it starts anything."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from spark_jobs.code_version import code_version
from spark_jobs.config import Settings
from spark_jobs.jvm import jars
from spark_jobs.jvm.errors import JarsMissing, JavaUnusable
from spark_jobs.jvm.java import find_java
from spark_jobs.server.errors import PortTaken
from spark_jobs.server.ports import expect_free
from spark_jobs.session import lake_jars


def fake_java(folder: Path, version: str, modules: bool = True) -> None:
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    refusal = "" if modules else 'case "$1" in --add-modules) exit 1;; esac\n'
    java.write_text(f"#!/bin/sh\n{refusal}echo 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
def test_an_old_java_is_refused_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaUnusable) as refusal:
        find_java()
    assert version in refusal.value.found
    assert "17" in refusal.value.expected


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_new_java_is_found_through_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java().executable == tmp_path / "bin" / "java"


def test_a_java_without_the_vector_module_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "17.0.1", modules=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaUnusable, match=r"jdk\.incubator\.vector"):
        find_java()


def test_a_missing_java_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaUnusable) as refusal:
        find_java()
    assert "apt-get install" in refusal.value.next_step
    assert refusal.value.facts["version"] is None


def test_a_taken_port_is_refused_with_its_owner() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(PortTaken) as refusal:
            expect_free("127.0.0.1", {"TIDEMARK_THRIFT_PORT": port})
    assert refusal.value.facts["pid"] == os.getpid()
    assert "TIDEMARK_THRIFT_PORT" in refusal.value.next_step
    expect_free("127.0.0.1", {"TIDEMARK_THRIFT_PORT": port})


def test_missing_jars_name_the_way_to_get_them(settings: Settings) -> None:
    with pytest.raises(JarsMissing, match="make setup"):
        lake_jars(settings.model_copy(update={"jars": settings.home}))


def test_only_a_lake_on_s3_asks_for_the_jars_of_s3(settings: Settings, tmp_path: Path) -> None:
    copies = tmp_path / "jars"
    shutil.copytree(settings.jars, copies, ignore=shutil.ignore_patterns("s3", "kafka", "postgresql", "broker"))
    local = settings.model_copy(update={"jars": copies, "landing": "s3a://bucket/landing"})
    assert [jar.name for jar in lake_jars(local)] == sorted(jar.file_name for jar in jars.DELTA.pinned_jars())
    with pytest.raises(JarsMissing, match="make setup-s3"):
        lake_jars(local.model_copy(update={"lake": "s3://bucket/lake"}))


def test_a_jar_that_is_not_the_pinned_one_is_seen(settings: Settings, tmp_path: Path) -> None:
    copies = tmp_path / "jars"
    shutil.copytree(settings.jars, copies)
    assert jars.DELTA.wrong(copies) == []
    victim = copies / jars.DELTA.pinned_jars()[0].file_name
    victim.write_bytes(victim.read_bytes()[:-1] + b"x")
    missing = copies / jars.DELTA.pinned_jars()[1].file_name
    missing.unlink()
    assert jars.DELTA.wrong(copies) == [victim.name, missing.name]


def test_the_code_version_follows_content_and_names(tmp_path: Path) -> None:
    package = tmp_path / "spark_jobs"
    package.mkdir()
    (package / "a.py").write_text("x = 1\n")
    first = code_version(tmp_path)
    assert code_version(tmp_path) == first
    (package / "a.py").write_text("x = 2\n")
    edited = code_version(tmp_path)
    (package / "a.py").rename(package / "b.py")
    renamed = code_version(tmp_path)
    (package / "notes.md").write_text("no code")
    assert len({first, edited, renamed}) == 3
    assert code_version(tmp_path) == renamed
