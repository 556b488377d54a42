"""CSV and Markdown of results: read back by a reader of their own, they are the rows that were written."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_jobs.cli.commands.sql import _printer
from spark_jobs.cli.formats import write_csv, write_markdown
from spark_jobs.cli.rows import as_fetched
from spark_jobs.errors import ParameterError

ROWS = pa.table(
    {
        "at": pa.array([datetime(2024, 3, 1, 9, tzinfo=UTC), None]),
        "load": pa.array([0.1 + 0.2, 3.0]),
        "money": pa.array([Decimal("1.20"), None], pa.decimal128(10, 2)),
        "text": pa.array(['a "b", c|d', "two\nlines"]),
        "empty": pa.array(["", None]),
        "many": pa.array([[*range(12)], []]),
        "is": pa.array([True, False]),
    }
)


def test_csv_has_every_value_and_tells_null_from_an_empty_text(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(as_fetched(ROWS))
    written = capsys.readouterr().out
    header, first, second = csv.reader(io.StringIO(written))
    assert header == ROWS.column_names
    assert first == [
        *("2024-03-01T09:00:00Z", "0.30000000000000004", "1.20", 'a "b", c|d', ""),
        *(str([*range(12)]), "true"),
    ]
    assert second == ["", "3.0", "", "two\nlines", "", "[]", "false"]
    assert ',"","[' in written, "an empty text is quoted"
    assert 'lines",,[]' in written, "null is not"


def test_markdown_is_one_line_for_each_row_with_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    write_markdown(as_fetched(ROWS.select(["load", "money", "text", "many"])))
    assert capsys.readouterr().out.splitlines() == [
        "| load | money | text | many |",
        "| ---: | ---: | --- | --- |",
        '| 0.30000000000000004 | 1.20 | a "b", c\\|d | [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 12 elements in all] |',
        "| 3.0 | NULL | two<br>lines | [] |",
    ]


def test_results_have_an_empty_line_between_them_and_those_without_columns_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, nothing = as_fetched(pa.table({"n": [1]})), as_fetched(pa.table({}))
    _printer("csv", as_json=False)([one, nothing, one])
    assert capsys.readouterr().out == "n\n1\n\nn\n1\n"


@pytest.mark.parametrize(("layout", "as_json"), [("json", False), ("csv", True), ("xml", False)])
def test_json_is_asked_for_in_one_way(layout: str, *, as_json: bool) -> None:
    with pytest.raises(ParameterError) as refused:
        _printer(layout, as_json=as_json)
    assert "--json" in refused.value.next_step
