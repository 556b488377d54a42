"""Envelopes of change data capture: an event of Debezium or Maxwell becomes the row that it changes.

The row's columns keep their names. The envelope's other members get an underscore in front: `_op` (`c` created, `u`
updated, `d` deleted, `r` read by a snapshot), `_before` (the row before the change, as an object), and all the rest
(`_source`, `_ts_ms`, `_xid`, …). A deleted row has the values that it had before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeGuard

Envelope = Literal["debezium", "maxwell"]
Pairs = list[tuple[str, Any]]
"""The members of an object in their order; a name may occur twice."""
_MAXWELL_OPS = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}


def row_of_event(event: Pairs, envelope: Envelope) -> Pairs | str:
    """The members of the row that an event changes, or the rule that the event breaks.

    Rules: `tombstone`, `truncate` (a table lost all of its rows), `no_row_change` (another event without a row)."""
    return _ENVELOPES[envelope](event)


def _of_debezium(event: Pairs) -> Pairs | str:
    names = dict(event)
    beside: Pairs = []
    if "payload" in names and "op" not in names:
        # the form that Debezium's JSON converter writes with a schema; the schema is no part of the row
        beside = [(name, value) for name, value in event if name not in ("schema", "payload")]
        if names["payload"] is None:
            return "tombstone"
        if not _is_object(names["payload"]):
            return "no_row_change"
        event = names["payload"]
        names = dict(event)
    op = names.get("op")
    if op == "t":
        return "truncate"
    row = names.get("before" if op == "d" else "after")
    if op not in ("c", "u", "d", "r") or not _is_object(row):
        return "no_row_change"
    fields = [(f"_{name}", value) for name, value in event if name != "after"]
    return [*beside, *row, *fields]


def _of_maxwell(event: Pairs) -> Pairs | str:
    names = dict(event)
    kind, row, old = names.get("type"), names.get("data"), names.get("old")
    if kind == "table-truncate":
        return "truncate"
    op = _MAXWELL_OPS.get(kind) if isinstance(kind, str) else None
    if op is None or not _is_object(row):
        return "no_row_change"
    before = None
    if op == "d":
        before = row
    elif op == "u":
        changed = dict(old) if _is_object(old) else {}
        before = type(row)((name, changed.get(name, value)) for name, value in row)
    fields = [(f"_{name}", value) for name, value in event if name not in ("data", "type")]
    return [*row, ("_op", op), ("_before", before), *fields]


def _is_object(value: Any) -> TypeGuard[Pairs]:
    # arrays are plain lists, objects the lists of pairs that the decoder makes
    return isinstance(value, list) and type(value) is not list


_ENVELOPES: dict[Envelope, Callable[[Pairs], Pairs | str]] = {"debezium": _of_debezium, "maxwell": _of_maxwell}
