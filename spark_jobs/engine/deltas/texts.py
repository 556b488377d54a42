"""A reader of texts with JSON lists of numbers, such as "[0, 2]"."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns.plain import Flags

_WHOLE = r"-?(0|[1-9][0-9]{0,17})"
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
_NAMED = {
    "NaN": math.nan,
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
}
"""The texts for numbers that JSON can't represent."""
_INT64 = range(-(2**63), 2**63)


def lists_of(texts: pa.Array, element: pa.DataType) -> tuple[pa.Array, Flags]:
    """Per text, its list of `element` (int64 or float64), whose elements may be null; and a mask of broken texts.

    A text is broken if it is not exactly one list, or if an element is no such number. The list of a broken text is
    null, and so is the list of a null.
    """
    number = _WHOLE if pa.types.is_integer(element) else _NUMBER
    plain = pc.fill_null(pc.match_substring_regex(texts, _list_of(f"({number}|null)")), fill_value=False)
    lists = _plain_lists(pc.if_else(plain, texts, pa.scalar(None, pa.string())), element)
    others = np.flatnonzero(pc.and_not(texts.is_valid(), plain).to_numpy(zero_copy_only=False))
    broken = np.zeros(len(texts), np.bool_)
    if others.size:
        read = [_one_list(text, element) for text in texts.take(pa.array(others)).to_pylist()]
        broken[others] = [one is None for one in read]
        places = np.arange(len(texts))
        places[others] = len(texts) + np.arange(others.size)
        lists = pa.concat_arrays([lists, pa.array(read, pa.list_(element))]).take(pa.array(places))
    return lists, broken


def _list_of(element: str) -> str:
    return rf"^\s*\[\s*({element}(\s*,\s*{element})*)?\s*\]\s*$"


def _plain_lists(texts: pa.Array, element: pa.DataType) -> pa.Array:
    """The lists of texts in which every element is a plain number or null."""
    inside = pc.replace_substring_regex(texts, r"[\s\[\]]", "")
    parts = pc.split_pattern(inside, ",")
    # an empty text is split into one empty part
    lengths = pc.if_else(pc.equal(inside, ""), 0, pc.list_value_length(parts))
    elements = pc.list_flatten(parts)
    elements = elements.filter(pc.not_equal(elements, ""))
    numbers = pc.if_else(pc.equal(elements, "null"), pa.scalar(None, pa.string()), elements)
    counts = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    absent = texts.is_null()
    starts = pa.array(offsets, mask=np.append(absent.to_numpy(zero_copy_only=False), False))
    return pa.ListArray.from_arrays(starts, numbers.cast(element))


def _one_list(text: str, element: pa.DataType) -> list[Any] | None:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, list):
        return None
    numbers = [_one_number(value, whole=pa.types.is_integer(element)) for value in read]
    return None if any(number is _NO_NUMBER for number in numbers) else numbers


_NO_NUMBER = object()


def _one_number(value: Any, *, whole: bool) -> Any:
    if value is None:
        return None
    if whole:
        return value if type(value) is int and value in _INT64 else _NO_NUMBER
    if isinstance(value, str):
        return _NAMED.get(value, _NO_NUMBER)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return _NO_NUMBER
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
