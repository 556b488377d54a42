"""Environments: copies of source files, whole or not there, under names that can be nothing but names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spark_jobs.cli.app import run
from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.sources import create_environment, drop_environment, environments, find_environment
from spark_jobs.sources.environments import FOLDER


@pytest.fixture
def production(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    for name in ("a.yml", "b.yaml", "_template.yml"):
        (folder / name).write_text(f"text of {name}\n")
    return folder


def test_an_environment_has_all_sources_or_those_named(tmp_path: Path, production: Path) -> None:
    every = create_environment(tmp_path, "dev", production)
    assert every.differences(production) == {"a": "same", "b": "same"}
    assert (every.folder / "b.yaml").read_text() == "text of b.yaml\n"
    one = create_environment(tmp_path, "dev_2", production, ["b", "b"])
    assert one.differences(production) == {"b": "same"}
    assert [e.name for e in environments(tmp_path)] == ["dev", "dev_2"]


def test_what_differs_from_production_is_said(tmp_path: Path, production: Path) -> None:
    environment = create_environment(tmp_path, "dev", production)
    (environment.folder / "a.yml").write_text("other\n")
    (environment.folder / "c.yml").write_text("new\n")
    assert environment.differences(production) == {"a": "changed", "b": "same", "c": "new"}
    assert (production / "a.yml").read_text() == "text of a.yml\n"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../dev",
        "/tmp/dev",
        "Dev",
        "dév",
        "a b",
        "a__b",
        "_a",
        "a_",
        "1a",
        "<script>",
        "a'",
        "a\n",
        "a" * 33,
    ],
)
def test_what_is_no_name_is_refused(tmp_path: Path, production: Path, name: str) -> None:
    for act in (
        lambda: create_environment(tmp_path, name, production),
        lambda: find_environment(tmp_path, name),
        lambda: drop_environment(tmp_path, name),
    ):
        with pytest.raises(ParameterError, match="a name of an environment"):
            act()
    assert not (tmp_path / FOLDER).exists()


def test_the_same_name_twice_leaves_the_first_as_it_is(tmp_path: Path, production: Path) -> None:
    first = create_environment(tmp_path, "dev", production)
    (first.folder / "a.yml").write_text("changed\n")
    with pytest.raises(ParameterError, match="which is there"):
        create_environment(tmp_path, "dev", production)
    assert (first.folder / "a.yml").read_text() == "changed\n"


def test_one_that_another_command_creates_meanwhile_is_not_replaced(
    tmp_path: Path, production: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copyfile

    def beaten(source: Path, target: Path) -> None:
        monkeypatch.setattr(shutil, "copyfile", copy)
        create_environment(tmp_path, "dev", production, ["b"])
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", beaten)
    with pytest.raises(ParameterError, match="which is there"):
        create_environment(tmp_path, "dev", production)
    assert find_environment(tmp_path, "dev").differences(production) == {"b": "same"}


def test_interrupted_while_it_copies_there_is_none(
    tmp_path: Path, production: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copyfile

    def interrupted(source: Path, target: Path) -> None:
        if source.name == "b.yaml":
            raise KeyboardInterrupt
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        create_environment(tmp_path, "dev", production)
    assert list((tmp_path / FOLDER).iterdir()) == []
    monkeypatch.undo()
    create_environment(tmp_path, "dev", production)


def test_an_unknown_source_creates_nothing(tmp_path: Path, production: Path) -> None:
    with pytest.raises(ParameterError, match="one of the sources a, b"):
        create_environment(tmp_path, "dev", production, ["a", "../a"])
    assert environments(tmp_path) == []


def test_dropped_it_is_gone_and_can_be_created_again(tmp_path: Path, production: Path) -> None:
    create_environment(tmp_path, "dev", production)
    drop_environment(tmp_path, "dev")
    assert list((tmp_path / FOLDER).iterdir()) == []
    with pytest.raises(ParameterError, match=r"one of the environments \(none\)"):
        drop_environment(tmp_path, "dev")
    create_environment(tmp_path, "dev", production)


@pytest.mark.slow
def test_the_commands(
    settings: Settings, production: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in settings.model_copy(update={"sources": production}).environment().items():
        monkeypatch.setenv(name, value)
    assert run(["env", "create", "dev", "a", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sources"] == {"a": "same"}
    (Path(document["folder"]) / "a.yml").write_text("changed\n")
    assert run(["env", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["environments"]
    assert listed == {**document, "sources": {"a": "changed"}, "built": {}}
    assert run(["plan", "b", "--from", "2013-01-01", "--to", "2013-01-01", "--env", "dev"]) != 0
    assert "one of the sources a" in capsys.readouterr().err
    save = str(production / "plan.json")
    assert run(["plan", "a", "--from", "2013-01-01", "--to", "2013-01-01", "--env", "dev", "--save", save]) != 0
    assert "--save or --env" in capsys.readouterr().err
    assert run(["env", "drop", "dev"]) == 0
    assert run(["env", "drop", "dev"]) != 0
    assert "tidemark env create dev" in capsys.readouterr().err
