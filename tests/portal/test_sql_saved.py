"""Saved queries: files of a folder whose names lead nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.errors import ParameterError
from spark_jobs.portal.sql.saved import MOST_CHARACTERS, SavedQueries


@pytest.fixture
def saved(tmp_path: Path) -> SavedQueries:
    return SavedQueries(tmp_path / "queries")


def test_a_query_is_saved_listed_replaced_and_deleted(saved: SavedQueries, tmp_path: Path) -> None:
    assert saved.all() == []
    saved.save("Late by hour (v2)", "SELECT 1\n-- a comment\n", "ann\nDROP", replace=False)
    saved.save("Übersicht", "SELECT 2", "böb", replace=False)
    assert [(each["name"], each["statement"], each["by"]) for each in saved.all()] == [
        ("Late by hour (v2)", "SELECT 1\n-- a comment\n", "ann DROP"),
        ("Übersicht", "SELECT 2", "böb"),
    ]
    text = (tmp_path / "queries" / "Übersicht.sql").read_text()
    assert text.splitlines()[0].startswith("-- saved by böb at 20") and text.endswith("SELECT 2\n")
    with pytest.raises(ParameterError, match="a name that no saved query has"):
        saved.save("Übersicht", "SELECT 3", "ann", replace=False)
    saved.save("Übersicht", "SELECT 3", "ann", replace=True)
    assert [each["statement"] for each in saved.all()] == ["SELECT 1\n-- a comment\n", "SELECT 3"]
    saved.delete("Übersicht")
    saved.delete("Übersicht")
    assert [each["name"] for each in saved.all()] == ["Late by hour (v2)"]


@pytest.mark.parametrize(
    "name",
    ["", " ", ".", "..", "../x", "/etc/x", "a/b", "a\\b", "a\x00b", "a\nb", ".hidden", "-x", "a ", "a.", "x" * 81],
)
def test_a_name_that_may_lead_elsewhere_is_refused(saved: SavedQueries, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "x.sql"
    outside.write_text("mine")
    for act in (lambda: saved.save(name, "SELECT 1", "ann", replace=True), lambda: saved.delete(name)):
        with pytest.raises(ParameterError, match="a name of up to 80"):
            act()
    assert outside.read_text() == "mine"
    assert [*tmp_path.iterdir()] == [outside]


def test_a_statement_that_is_empty_or_too_long_is_refused(saved: SavedQueries) -> None:
    for statement in (" \n", "x" * (MOST_CHARACTERS + 1)):
        with pytest.raises(ParameterError, match="a statement of up to"):
            saved.save("a", statement, "ann", replace=False)


def test_files_that_people_put_there_are_read_too(saved: SavedQueries, tmp_path: Path) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "by hand.sql").write_text("SELECT 1")
    (folder / "notes.txt").write_text("no query")
    (folder / ".hidden.sql").write_text("no query")
    assert saved.all() == [{"name": "by hand", "statement": "SELECT 1", "by": None, "at": None}]
