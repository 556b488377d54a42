"""Long lists are cut, on pages and in the tables of plans and reasons; what programs read has all of them."""

from __future__ import annotations

from decimal import Decimal

from spark_jobs.cli import output
from spark_jobs.portal import values
from spark_jobs.portal.charts import finite
from spark_jobs.portal.markup import cell

LONG = list(range(80_000))


def test_of_a_long_list_the_first_elements_are_shown_and_how_many_more_there_are() -> None:
    assert values.format_value(LONG) == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 79,990 more]"
    assert output.short_text(LONG) == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 80,000 elements in all]"
    assert values.format_value(LONG[:10]) == output.short_text(LONG[:10]) == str(LONG[:10])
    assert output.text_of(LONG) == str(LONG)
    assert values.format_value({"a": LONG[:11]}) == f'{{"a": {LONG[:11]}}}'


def test_decimals_stand_right_with_all_of_their_digits() -> None:
    assert cell(Decimal("12.50")) == '<td class="num">12.50</td>'
    assert cell(Decimal("0E-8")) == '<td class="num">0.00000000</td>'
    assert cell(True) == "<td>yes</td>"
    assert (finite(Decimal("2.5")), finite(Decimal("NaN"))) == (2.5, None), "as JSON has numbers"
