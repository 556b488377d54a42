"""The case files of windows: source files with tests, which run through all stages, in several orders of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.sources import load_source
from spark_jobs.trials.source_tests import run_tests

FILES = sorted((Path(__file__).resolve().parents[1] / "cases" / "windows").glob("*.yml"))


@pytest.mark.turns
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_the_tests_of_a_case_file_pass_in_any_order_of_rows(file: Path) -> None:
    results = [*run_tests(load_source(file), file.read_text(), orders=1)]
    assert [result for result in results if not result.passed] == []
