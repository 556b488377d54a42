"""Every case file of kind `chunks` replays without a mismatch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.replaying.runner import main

FILES = sorted((Path(__file__).resolve().parents[1] / "cases" / "chunks").glob("*.json"))


def test_there_are_at_least_60_cases_with_names_of_their_own() -> None:
    names = [case["name"] for file in FILES for case in json.loads(file.read_text(encoding="utf-8"))]
    assert len(names) >= 60
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_cases_of_a_file_hold(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["chunks", str(file)])
    assert code == 0, capsys.readouterr().out
