"""Tables for people: no title wraps, no column is squeezed, long lists are cut, numbers are to the right."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console, RenderableType

from spark_jobs.cli.output import ELEMENTS, LEAST_FOLDED, short_text, table, text_of
from spark_jobs.model import pluralize


def lines_of(what: RenderableType, width: int) -> list[str]:
    console = Console(width=width, record=True, file=StringIO())
    console.print(what)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert all(len(line) <= width for line in lines)
    return lines


def test_a_title_has_the_whole_width_of_the_terminal_above_a_narrow_table() -> None:
    title = "pins of march: sales as known at 2024-03-02T00:00:00Z"
    assert lines_of(table(["n"], [(1,)], title=title), 80) == [title, "n", "1"]


def test_numbers_are_to_the_right_and_an_absent_one_is_visible() -> None:
    assert lines_of(table(["what", "n"], [("a", 1), ("b", 1000), ("c", None)]), 80) == [
        *("what     n", "a        1", "b     1000", "c     NULL"),
    ]


@pytest.mark.parametrize("room", [LEAST_FOLDED, LEAST_FOLDED - 1])
def test_the_widest_column_is_folded_while_it_stays_readable_and_else_each_row_is_a_record(room: int) -> None:
    rows = [("bronze", 1, "words and words and words and words and words and words"), ("silver", 22, "few words")]
    lines = lines_of(table(["gate", "passed", "found"], rows), len("bronze  passed  ") + room)
    if room < LEAST_FOLDED:
        assert lines[0] == "row 1"
        assert "passed  22" in [line.strip() for line in lines]
        return
    assert lines[0] == "gate    passed  found"
    assert lines[1].startswith("bronze       1  words and")
    assert lines[2].startswith("                words") and lines[-1] == "silver      22  few words"


def test_of_a_long_list_people_see_the_first_elements_and_how_many_there_are_and_programs_all() -> None:
    vector = [0.5] * 80_000
    assert short_text(vector) == f"[{'0.5, ' * ELEMENTS}… 80,000 elements in all]"
    assert short_text({"v": vector, "n": [1]}).endswith('elements in all], "n": [1]}')
    assert short_text([*range(ELEMENTS)]) == text_of([*range(ELEMENTS)])
    assert len(text_of(vector)) == 80_000 * len("0.5, ")
    assert len(lines_of(table(["m", "vector"], [("a", vector)]), 80)) <= 5


def test_one_of_a_thing_is_no_plural() -> None:
    assert [pluralize(n, "reject") for n in (0, 1, 1200)] == ["0 rejects", "1 reject", "1,200 rejects"]
    assert pluralize(1, "process", "processes") + pluralize(2, "process", "processes") == "1 process2 processes"
