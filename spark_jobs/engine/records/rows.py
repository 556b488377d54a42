"""From cells to rows: the parts of a row that a source declares (entity, times, delta id), and a rule and a reason for
each record that lacks one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.records import tokens
from spark_jobs.engine.records.cells import RecordCells
from spark_jobs.engine.records.erased import ERASED, texts_of
from spark_jobs.engine.records.rejects import Reject, RejectCounter
from spark_jobs.engine.records.row_checks import mark_checks
from spark_jobs.engine.records.rules import (
    NUMBER,
    RULES,
    check_reason,
    record_reason,
    rule_name,
    show_raw,
    value_reason,
)
from spark_jobs.engine.records.spec import COLUMN_PREFIX, EXTRA, INSTANT, TIMELINE_PREFIX, RecordSpec
from spark_jobs.engine.records.values import NOTE_PREFIX, Values, gather_strings, read_column

_VALUE_RULES = range(NUMBER["nested_value"], NUMBER["missing_entity"])


def rows_of_cells(cells: RecordCells, spec: RecordSpec, counter: RejectCounter) -> pa.RecordBatch:
    """The batch of `spec.schema()` for the records of `cells`. Each record is a good row, or a reject with the first
    rule that it breaks; rejects that `counter` counts in ranges are left out.
    """
    rules, arguments = cells.rules, cells.arguments
    _check_drift(cells, spec)
    columns: list[Values] = []
    for place, column in enumerate(spec.columns):
        place_cells = cells.starts[place], cells.ends[place], cells.kinds[place]
        columns.append(read_column(column, cells.data, *place_cells, rules == 0))
        mark(rules, arguments, columns[-1].rules, place)
    parts = row_parts(columns, spec, rules, arguments)
    extra = _extra(cells, columns)
    mark_mentions(spec, rules, lambda index: _raw(cells, index))
    rejects = counter.keep(rules, cells.lines, lambda index: _reject(cells, spec, index))
    return assemble(spec, cells.lines, rules == 0, parts, columns, extra, rejects)


def mark(rules: np.ndarray, arguments: np.ndarray, broken: np.ndarray, argument: int) -> None:
    """Set the rule of each record that has none yet to its number in `broken` (0: none), with this `argument`."""
    first = (rules == 0) & (broken != 0)
    rules[first], arguments[first] = broken[first], argument


def _check_drift(cells: RecordCells, spec: RecordSpec) -> None:
    if spec.unknown_columns == "keep":
        return
    unknown = np.full(len(cells), bool(cells.extra_names))
    unknown[list(cells.extras)] = True
    mark(cells.rules, cells.arguments, unknown * NUMBER["unknown_column"], 0)
    for place, column in enumerate(spec.columns):
        absent = (cells.kinds[place] == tokens.ABSENT) & (not column.optional)
        mark(cells.rules, cells.arguments, absent * NUMBER["missing_column"], place)


def row_parts(columns: list[Values], spec: RecordSpec, rules: np.ndarray, arguments: np.ndarray) -> dict[str, pa.Array]:
    """The entity, event time, arrival, delta id and timelines of each record, by their names in the schema.

    A record that lacks an entity, an event time or a part of the delta id gets the rule for that; a record with an
    erased value gets its rule; the others get the rule of the first check that they break, if any.
    """
    entity = as_text(columns[spec.place(spec.entity)])
    timelines = {name: columns[spec.place(column)] for name, column in spec.timelines}
    event_us, timed_by = _first_present([timelines[name] for name in spec.event_time])
    ids = {spec.place(name): as_text(columns[spec.place(name)]) for name in spec.delta_id or ()}
    named = _true(pc.greater(pc.binary_length(entity), 0))
    mark(rules, arguments, ~named * NUMBER["missing_entity"], 0)
    mark(rules, arguments, (timed_by < 0) * NUMBER["missing_time"], 0)
    for place, text in ids.items():
        mark(rules, arguments, _true(text.is_null()) * NUMBER["missing_delta_id"], place)
    if spec.erased is not None:
        mark(rules, arguments, spec.erased.flags(entity) * NUMBER[ERASED], 0)
        for column in spec.erased.columns:
            texts = as_text(columns[spec.place(column)])
            mark(rules, arguments, spec.erased.flags(texts, column) * NUMBER[ERASED], 0)
    if spec.checks:
        places = np.array([spec.place(dict(spec.timelines)[name]) for name in spec.event_time])
        mark_checks(columns, spec, event_us, places[timed_by], rules, arguments)
    good = rules == 0
    arrival = timelines[spec.arrival] if spec.arrival else None
    nothing = len(rules)
    return {
        "entity": _only(entity, good),
        "event_time": pa.array(event_us, INSTANT, mask=~good),
        "arrival": _instants(arrival, good) if arrival else pa.nulls(nothing, INSTANT),
        "delta_id": _only(_join(list(ids.values())), good) if ids else pa.nulls(nothing, pa.string()),
        **{TIMELINE_PREFIX + name: _instants(times, good) for name, times in timelines.items()},
    }


def assemble(
    spec: RecordSpec,
    lines: np.ndarray,
    good: np.ndarray,
    parts: dict[str, pa.Array],
    columns: list[Values],
    extra: pa.Array,
    rejects: dict[int, Reject],
) -> pa.RecordBatch:
    """The batch of `spec.schema()` with the good records and those of `rejects`. In a reject, all columns but the line,
    rule, reason and raw text are null.
    """
    reject_columns: list[list[str | None]] = [[None] * len(lines) for _ in range(3)]
    for index, reject in rejects.items():
        for texts, text in zip(reject_columns, reject, strict=True):
            texts[index] = text
    arrays = {
        "line": pa.array(lines, pa.int64()),
        **parts,
        **{COLUMN_PREFIX + values.column.name: values.array(good) for values in columns},
        "extra": extra,
        **{
            name: pa.array(texts, pa.string())
            for name, texts in zip(("rule", "reason", "raw"), reject_columns, strict=True)
        },
    }
    schema = spec.schema()
    filled = [arrays[f.name] if f.name in arrays else pa.nulls(len(lines), f.type) for f in schema]
    batch = pa.RecordBatch.from_arrays(filled, schema=schema)
    left = good.copy()
    left[list(rejects)] = True
    return batch if left.all() else batch.filter(pa.array(left))


def as_text(values: Values) -> pa.Array:
    """A key column as text: instants in ISO-8601 UTC, with microseconds only if they are not zero."""
    if values.strings is not None:
        return values.strings
    everywhere = np.ones(len(values.present), bool)
    return texts_of(values.array(everywhere & (values.rules == 0)))


def _join(texts: list[pa.Array]) -> pa.Array:
    """The parts of a delta id as one text, separated by `|` and escaped, so that different parts never give the same
    text."""
    escaped = [pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), "|", "\\|") for text in texts]
    return pc.binary_join_element_wise(*escaped, "|")


def _first_present(timelines: list[Values]) -> tuple[np.ndarray, np.ndarray]:
    """Per record, the time, in microseconds, on the first timeline that it has a time on, and the place of that
    timeline; -1: it has no time."""
    time_us, which = np.zeros(len(timelines[0].present), np.int64), np.full(len(timelines[0].present), -1)
    for index, timeline in enumerate(timelines):
        added = (which < 0) & timeline.present
        time_us[added], which[added] = timeline.numbers[added], index
    return time_us, which


def _instants(times: Values, good: np.ndarray) -> pa.Array:
    return pa.array(times.numbers, INSTANT, mask=~(times.present & good))


def _true(answers: pa.Array) -> np.ndarray:
    return pc.fill_null(answers, False).to_numpy(zero_copy_only=False)


def _only(texts: pa.Array, good: np.ndarray) -> pa.Array:
    return texts if good.all() else pc.if_else(pa.array(good), texts, pa.scalar(None, pa.string()))


def _extra(cells: RecordCells, columns: list[Values]) -> pa.Array:
    """The `extra` of each record: the values of its undeclared columns, and notes on resolved local times. Empty maps
    for records without any; null for rejected records."""
    good = cells.rules == 0
    if not cells.extras and not any(values.notes for values in columns):
        return _extra_of_header(cells, len(columns), good)
    maps: list[list[tuple[str, str | None]] | None] = []
    for index in range(len(cells)):
        items: list[tuple[str, str | None]] = [
            (name, cells.text(len(columns) + at, index)) for at, name in enumerate(cells.extra_names)
        ]
        items += cells.extras.get(index, ())
        maps.append(items if good[index] else None)
    return pa.array(add_notes(maps, columns), EXTRA)


def add_notes(
    maps: list[list[tuple[str, str | None]] | None], columns: list[Values]
) -> list[list[tuple[str, str | None]] | None]:
    """The `extra` of each record (None for a rejected one) with the notes of its columns added."""
    for values in columns:
        for index, note in (values.notes or {}).items():
            items = maps[index]
            if items is not None:
                items.append((NOTE_PREFIX + values.column.name, note))
    return maps


def _extra_of_header(cells: RecordCells, first: int, good: np.ndarray) -> pa.Array:
    names = len(cells.extra_names)
    offsets = np.zeros(len(cells) + 1, np.int32)
    np.cumsum(good * names, out=offsets[1:])
    starts, ends = (
        np.ascontiguousarray(bounds[first : first + names, good].T).ravel() for bounds in (cells.starts, cells.ends)
    )
    items = gather_strings(cells.data, starts, ends, np.ones(len(starts), bool))
    keys = pa.array(list(cells.extra_names), pa.string()).take(np.tile(np.arange(names), int(good.sum())))
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, mask=pa.array(~good), type=EXTRA)


def _reject(cells: RecordCells, spec: RecordSpec, index: int) -> Reject:
    number, argument = int(cells.rules[index]), int(cells.arguments[index])
    text = cells.text(argument, index) if number in _VALUE_RULES or number >= len(RULES) else ""
    raw = None if number == NUMBER[ERASED] else _raw(cells, index)
    unknown = [*cells.extra_names, *(name for name, _ in cells.extras.get(index, ()))]
    return rule_name(number, spec), reason_of(number, argument, spec, text, cells.width, unknown), raw


def _raw(cells: RecordCells, index: int) -> str:
    return show_raw(cells.record(index), escape=cells.rules[index] == NUMBER["bad_utf8"])


def mark_mentions(spec: RecordSpec, rules: np.ndarray, raw: Callable[[int], str]) -> None:
    """Change the rule of rejects that mention an erased value to `ERASED`, under which nothing of a record is kept.
    `raw` returns the text of the reject at a place."""
    if spec.erased is None:
        return
    for index in np.flatnonzero(rules).tolist():
        if spec.erased.mentioned_in(raw(index)):
            rules[index] = NUMBER[ERASED]


def reason_of(
    number: int, argument: int, spec: RecordSpec, text: str, width: int, unknown: Iterable[str]
) -> str:  # fmt: skip
    """The sentence for the rule `number` with its `argument`; `text` is the value, `width` the number of the file's
    columns, `unknown` the names of the record's undeclared columns."""
    if number >= len(RULES):
        return check_reason(spec.checks[number - len(RULES)], spec.columns[argument], text)
    if number in _VALUE_RULES:
        return value_reason(RULES[number], spec.columns[argument], text)
    return record_reason(RULES[number], spec, argument, width, unknown)
