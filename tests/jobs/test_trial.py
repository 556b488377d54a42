"""`tidemark try`: files in, published tables out, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.cli.app import run
from spark_jobs.trials.trial import try_files

HEADER = "id,device,at,temperature\n"


def write(folder: Path, name: str, rows: list[str]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


@pytest.fixture
def days(tmp_path: Path) -> list[Path]:
    """Two days of two devices; the second has a late row, a row that came before, and a row without a number."""
    first = [f"a{hour},dev-{hour % 2},2024-03-01T{hour:02}:30:00Z,{hour}.5" for hour in range(24)]
    second = [f"b{hour},dev-{hour % 2},2024-03-02T{hour:02}:30:00Z,{hour}.5" for hour in range(24)]
    odd = ["late,dev-0,2024-03-01T02:45:00Z,7.5", first[3], "bad,dev-1,2024-03-02T05:00:00Z,warm"]
    return [
        write(tmp_path / "readings", "2024-03-01.csv", first),
        write(tmp_path / "readings", "2024-03-02.csv", [*second, *odd]),
    ]


def test_late_rows_of_the_second_file_restate_windows_of_the_first(days: list[Path], tmp_path: Path) -> None:
    trial = try_files(days, tmp_path / "scratch")
    assert trial.guess is not None
    assert trial.guess.source.name == "readings"
    one, other = trial.drops
    assert [drop.ran.drop for drop in trial.drops] == ["2024-03-01", "2024-03-02"]
    assert [one.ran.count(what) for what in ("rows", "rejects", "duplicates")] == [24, 0, 0]
    assert [other.ran.count(what) for what in ("rows", "rejects", "duplicates")] == [25, 1, 1]
    assert (one.late.num_rows, other.late.num_rows) == (0, 1)
    [restated] = other.restated
    [before] = restated.before.to_pylist()
    [after] = [row for row in restated.after.to_pylist() if row["window_start"] == before["window_start"]]
    assert (before["rows_counted"], before["mean_temperature"]) == (1, 2.5)
    assert (after["rows_counted"], after["mean_temperature"]) == (2, 5.0)
    assert trial.windows["readings_hourly"].num_rows == 48


def test_more_windows_than_are_shown_are_counted_and_new_ones_are_shown_beside_restated_ones(
    days: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["try", *map(str, days)]) == 0
    _, first, second = capsys.readouterr().out.split("\ndrop ")
    assert "24 new windows\nthe first 10 of 24:\n" in first
    assert "24 new windows, 1 restated\nrestated:\n" in second
    of_new = second.partition("\nnew, the first 5 of 24:\n")[2]
    assert of_new.count("2024-03-02T") >= 5, "new windows, none of the restated day"
    assert "→" not in of_new


def test_a_check_in_sql_is_skipped_with_a_warning(
    days: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guessed = try_files(days, tmp_path / "scratch").installation.settings.sources / "readings.yml"
    checks = "checks:\n  warm: {kind: sql, sql: temperature > -300}\n"
    text = guessed.read_text()
    assert "\nchecks:\n" in text
    guessed.write_text(text.replace("checks:\n", checks))
    assert run(["try", "--source", str(guessed), *map(str, days), "--json"]) == 0
    printed = capsys.readouterr()
    assert "warning: not judged, since only Spark reads" in printed.err
    assert "warm" in printed.err
    document = json.loads(printed.out)
    assert document["skipped_checks"] == ["warm"]
    assert [drop["rows"] for drop in document["drops"]] == [24, 25]


def test_files_without_a_date_come_on_the_last_day_of_their_rows(days: list[Path], tmp_path: Path) -> None:
    renamed = [days[1].rename(tmp_path / "readings" / "x.csv"), days[0].rename(tmp_path / "readings" / "y.csv")]
    trial = try_files(renamed, tmp_path / "scratch")
    assert [drop.files for drop in trial.drops] == [("y.csv",), ("x.csv",)]


def test_a_row_of_a_wrong_year_does_not_decide_when_its_file_came(tmp_path: Path) -> None:
    rows = [f"{n},dev-{n % 3},2024-03-01T{n % 24:02}:00:00Z,1.5" for n in range(300)]
    trial = try_files([write(tmp_path, "x.csv", [*rows, "300,dev-1,2999-01-01T00:00:00Z,1.5"])], tmp_path / "scratch")
    assert trial.drops[0].ran.drop == "2024-03-01"
    assert trial.drops[0].ran.count("rows") == 301


def test_what_is_kept_is_ready_for_an_installation(
    days: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = tmp_path / "keep"
    assert run(["try", *map(str, days), "--keep", str(keep), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["drops"][1]["windows"]["readings_hourly"] == {"published": 25, "restated": 1}
    assert (keep / "sources" / "readings.yml").is_file()
    assert {path.name for path in (keep / "landing").rglob("*.csv")} == {day.name for day in days}
    assert Path(document["page"]).is_file()
    assert "readings" in Path(document["page"]).read_text()


@pytest.mark.parametrize(("arguments", "expected"), [(["nowhere.csv"], "files that are there"), ([], "FILE")])
def test_files_that_are_not_there_are_refused(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["try", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_nothing_is_written_into_a_folder_that_has_something(
    days: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["try", str(days[0]), "--keep", str(days[0].parent)]) == 2
    assert "empty" in capsys.readouterr().err


def test_nothing_of_it_starts_a_jvm(days: list[Path], tmp_path: Path) -> None:
    code = (
        "import os, sys; os.environ['JAVA_HOME'] = os.environ['PATH'] = '/nowhere'\n"
        "from spark_jobs.cli.app import run\n"
        f"code = run(['try', {str(days[0])!r}, {str(days[1])!r}])\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 restated" in done.stdout
