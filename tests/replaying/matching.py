"""How a step's answer is matched with what its case expects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeGuard

from tests.replaying.protocol import Json


def is_refusal(expected: Json) -> bool:
    """Whether this is the form `{"error": {"code": …, facts}}`."""
    return isinstance(expected, dict) and isinstance(expected.get("error"), dict) and "code" in expected["error"]


def matches(wanted: Json, given: Json) -> bool:
    """An object matches any object that has its fields, by the same rule; anything else matches its equal alone."""
    if isinstance(wanted, dict):
        return isinstance(given, dict) and all(name in given and matches(wanted[name], given[name]) for name in wanted)
    return equal(wanted, given)


def equal(wanted: Json, given: Json) -> bool:
    """Equality of JSON values: `true` is not 1, an object has the same fields in any order, an array the same order."""
    if isinstance(wanted, bool) or isinstance(given, bool):
        return wanted is given
    if isinstance(wanted, dict) and isinstance(given, dict):
        return wanted.keys() == given.keys() and all(equal(wanted[name], given[name]) for name in wanted)
    if isinstance(wanted, list) and isinstance(given, list):
        return len(wanted) == len(given) and all(map(equal, wanted, given))
    return bool(wanted == given)


def consolidated(value: Json) -> Json:
    """The value with each list of updates, at the top or in an object's field, summed per (key, value, time)."""
    if isinstance(value, Mapping):
        return {name: consolidated(field) for name, field in value.items()}
    if not _is_update_list(value):
        return value
    sums: defaultdict[tuple[str, str, int], int] = defaultdict(int)
    for key, data, time, diff in value:
        sums[key, data, time] += diff
    return [[*place, diff] for place, diff in sorted(sums.items()) if diff != 0]


def _is_update_list(value: Json) -> TypeGuard[list[list[Json]]]:
    return isinstance(value, list) and bool(value) and all(map(_is_update, value))


def _is_update(value: Json) -> bool:
    types = [str, str, int, int]
    return isinstance(value, list) and len(value) == len(types) and all(map(isinstance, value, types))
