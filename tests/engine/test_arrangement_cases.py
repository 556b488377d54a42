"""Every case file of kind `arrangement` replays without a mismatch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replaying.runner import main

FILES = sorted((Path(__file__).resolve().parents[1] / "cases" / "arrangement").glob("*.json"))


def test_there_are_case_files() -> None:
    assert len(FILES) >= 10


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_cases_of_a_file_hold(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["arrangement", str(file)])
    assert code == 0, capsys.readouterr().out
