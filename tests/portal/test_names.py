"""Names of pages: any text becomes one part of a path, and comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.portal.links import Links
from spark_jobs.portal.names import decode_key, decode_part, encode_key, encode_part

TEXTS = st.text(max_size=30)


@given(TEXTS)
def test_a_text_comes_back_from_its_name_which_is_plain(text: str) -> None:
    name = encode_part(text)
    assert decode_part(name) == text
    assert not {*name} - {*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.~"}
    assert not name.startswith(".")


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_key_comes_back_from_its_name(values: list[str]) -> None:
    assert decode_key(encode_key(values)) == values


def test_links_are_relative_and_stop_where_there_is_no_page() -> None:
    links = Links("runs/flights/a.html", most_rows=1)
    assert links.to("sources", "flights") == "../../sources/flights.html"
    assert links.to("runs", "flights", "x" * 300) is None
    assert links.why("flights", "silver.delays", ["JFK", "a/b"]) == "../../why/flights/delays/JFK~~a~2Fb.html"
    assert links.why("flights", "silver.delays", ["JFK", "a/b"]) is not None
    assert links.why("flights", "silver.delays", ["LGA", "a/b"]) is None
    assert links.rows == ["why/flights/delays/JFK~~a~2Fb.html"]
    assert Links("", is_alone=True).to("index") is None
