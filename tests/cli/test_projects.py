"""Projects and examples as commands write them: `new`, `init --example`, `try --source`."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_jobs.cli.app import run
from spark_jobs.config import Settings, load_settings
from spark_jobs.projects.examples import examples
from spark_jobs.settings.file import read_settings_file
from tests.docs.test_snippets import Block, find_faults, read_blocks
from tests.installations import CHECKOUT

EXAMPLES = [*examples()]


def files_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_project_has_all_parts_of_its_example(
    tmp_path: Path, example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "our-lake"
    assert run(["new", str(folder), "--example", example, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert files_of(folder) == sorted(document["files"])
    of_example = examples()[example]
    assert {*files_of(of_example.folder)} < {*document["files"]}
    assert {".gitignore", "README.md", "compose.yaml", "tidemark.toml"} < {*document["files"]}
    assert not [path for path in files_of(folder) if re.search(r"@[A-Z]+@", (folder / path).read_text())]
    readme = (folder / "README.md").read_text()
    assert readme.startswith("# our-lake\n")
    assert f"tidemark run {of_example.source} --from {of_example.drops[0]}" in readme
    blocks = [block for block in read_blocks(readme, "README.md") if block.language == "console"]
    assert blocks
    assert [fault for block in blocks for fault in find_faults(block)] == []


@pytest.mark.turns
def test_check_test_and_try_run_in_a_new_project(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(["new", str(tmp_path / "p"), "--example", "clicks"]) == 0
    shown = capsys.readouterr().out
    assert "tidemark try --source clicks" in shown
    monkeypatch.delenv("TIDEMARK_CONFIG")
    monkeypatch.chdir(tmp_path / "p" / "dbt")
    of_file = load_settings()
    assert of_file.dbt is not None
    assert (of_file.dbt / "models").is_dir()
    assert of_file.home == tmp_path / "p" / ".tidemark"
    # `try` works in a folder of its own, also where the file names a lake
    with (tmp_path / "p" / "tidemark.toml").open("a") as file:
        file.write('lake = "lake of the project"\n')
    for command, part in (
        (["check"], "right: clicks"),
        (["test", "--case", "a_late_click_joins_two_visits"], "passed"),
        (["try", "--source", "clicks"], "2 restated"),
    ):
        assert run(command) == 0
        assert part in capsys.readouterr().out
    assert run(["try", "--source", "clicks", "--keep", str(tmp_path / "kept")]) == 0
    # pages of the runs, which only the trial's lake has
    assert (tmp_path / "kept" / "pages" / "runs" / "clicks").is_dir()
    assert not (tmp_path / "p" / "lake of the project").exists()


def test_a_folder_that_has_something_is_refused_and_left_as_it_is(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "note.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "note.txt"):
        assert run(["new", str(folder)]) == 2
        assert "empty or not there yet" in capsys.readouterr().err
    assert files_of(tmp_path) == ["note.txt"]
    (tmp_path / "empty").mkdir()
    assert run(["new", str(tmp_path / "empty")]) == 0
    assert run(["new", str(tmp_path / "other"), "--example", "none"]) == 2
    assert "clicks, flights, orders, sensors" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("example", EXAMPLES)
def test_init_writes_an_example_that_is_ready_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, example: str
) -> None:
    monkeypatch.setenv("TIDEMARK_LANDING", str(tmp_path / "landing"))
    (tmp_path / "sources").mkdir()
    arguments = ["init", str(tmp_path / "sources"), "--example", example]
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    source = document["source"]
    assert files_of(tmp_path / "sources") == [f"{source}.yml"]
    assert len(files_of(tmp_path / "landing" / source)) == len(document["landed"]) >= 3
    # nothing is written a second time, also if only the landed files are there
    assert run(arguments) == 2
    Path(document["path"]).unlink()
    assert run(arguments) == 2
    assert "not there yet" in capsys.readouterr().err
    assert files_of(tmp_path / "sources") == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "--from FILE or --example NAME"),
        (["--from", "a.csv", "--example", "orders"], "--from FILE or --example NAME"),
        (["--example", "orders", "--name", "mine"], "--example alone"),
        (["--example", "none"], "one of the examples"),
    ],
)
def test_arguments_of_init_that_do_not_go_together_are_refused(
    tmp_path: Path, capsys: Any, arguments: list[str], expected: str
) -> None:
    assert run(["init", str(tmp_path), *arguments]) == 2
    assert expected in capsys.readouterr().err
    assert files_of(tmp_path) == []


def test_no_example_lands_in_a_store_of_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TIDEMARK_LANDING", "s3a://bucket/landing")
    assert run(["init", str(tmp_path), "--example", "orders"]) == 2
    assert "a landing folder of this machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "FILE or --source SOURCE"),
        (["--source", "SOURCE", "--name", "mine"], "no --name, --entity and --time beside --source"),
        (["--source", "SOURCE"], "files of orders in"),
        (["--source", "nowhere.yml"], "a source file"),
    ],
)
def test_arguments_of_try_that_do_not_go_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], expected: str
) -> None:
    monkeypatch.setenv("TIDEMARK_LANDING", str(tmp_path / "landing"))
    path = str(examples()["orders"].source_file)
    assert run(["try", *(path if each == "SOURCE" else each for each in arguments)]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.slow
def test_files_of_ones_own_are_tried_with_a_source_file(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "2024-03-05.csv"
    path.write_text("id,sensor,at,temperature,battery\n1,attic,2024-03-05T10:00:00Z,12.5,3.0\nx\n")
    source = str(examples()["sensors"].source_file)
    assert run(["try", str(path), "--source", source, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    [drop] = document["drops"]
    assert (document["source"], drop["drop"], drop["rows"], drop["rejects"]) == ("sensors", "2024-03-05", 1, 1)


def test_the_compose_file_of_a_project_is_that_of_the_deployment_with_its_own_folders(tmp_path: Path) -> None:
    assert run(["new", str(tmp_path / "p")]) == 0
    ours = yaml.safe_load((tmp_path / "p" / "compose.yaml").read_text())["services"]["tidemark"]
    deployment = yaml.safe_load((CHECKOUT / "docker" / "compose.yaml").read_text())["services"]["tidemark"]
    differing = {"build", "volumes", "environment"}
    assert {k: v for k, v in ours.items() if k not in differing} == {
        k: v for k, v in deployment.items() if k not in differing
    }
    assert ours["environment"]["TIDEMARK_CONFIG"] == "/project/tidemark.toml"
    assert "./tidemark.toml:/project/tidemark.toml:ro" in ours["volumes"]
    in_file = read_settings_file(tmp_path / "p" / "tidemark.toml")
    for name in ("sources", "landing", "dbt"):
        assert in_file[name] == str(tmp_path / "p" / name)
        assert f"./{name}:/project/{name}:ro" in ours["volumes"]
        assert (tmp_path / "p" / name).is_dir()


@pytest.mark.parametrize("command", ["new", "init"])
def test_help_names_all_examples(capsys: Any, command: str) -> None:
    assert run([command, "--help"]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"{', '.join(EXAMPLES[:-1])} or {EXAMPLES[-1]}" in out


def test_git_leaves_out_data_and_keeps_what_people_write(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    assert run(["new", str(folder)]) == 0
    (folder / ".tidemark").mkdir()
    (folder / ".tidemark" / "state").write_text("")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    added = subprocess.run(
        ["git", "-C", str(folder), "add", "--all", "--dry-run"], capture_output=True, text=True, check=True
    ).stdout
    assert "sources/sensors.yml" in added
    assert "dbt/models/sensor_days.sql" in added
    assert "landing" not in added
    assert ".tidemark" not in added


def test_a_wrong_command_in_a_readme_would_be_found() -> None:
    assert find_faults(Block("README.md:1", "console", "", "$ tidemark tests\n", ""))
