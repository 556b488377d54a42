"""Histories as charts: the values of a published row by revision, and a state over event time as it was known."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.folding import columns_read, fold_rows, folded_columns
from spark_jobs.portal.charts import Chart, finite
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.values import format_value, is_number
from spark_jobs.reads.point import ReadPoint
from spark_jobs.reads.why import Why
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.trace.frontiers import NO_HORIZON_US
from spark_jobs.trace.source_plane import stored_counting_rows

_MOST_VALUES, _MOST_DELTAS = 4, 2_000
"""The most columns that a chart has, and the most deltas of an entity of which states are worked out."""
_EVENTS, _KNOWN = 16, 4
"""The most event times and times of knowledge of a chart of states."""


def steps_chart(why: Why, now: datetime) -> Chart | None:
    """The numbers of a published row by the time from which they are known; None for a row with one revision.

    The last values are drawn a little beyond their beginning, at most until `now`, or until the row's end.
    """
    revisions = why.revisions
    columns = [name for name, value in (revisions[0].values if revisions else {}).items() if is_number(value)]
    varying = [name for name in columns if len({revision.values[name] for revision in revisions}) > 1][:_MOST_VALUES]
    if len(revisions) < 2 or not varying:
        return None
    notes = [f"revision {each.revision}: {_cause(each.causes)}" for each in revisions]
    first, last = revisions[0], revisions[-1]
    # up to now the first steps of an old row would be one line
    ends = last.known_to or min(last.known_from + (last.known_from - first.known_from) / 4, max(now, last.known_from))
    times = [*(each.known_from for each in revisions), ends]
    series = [
        {"title": name, "values": [finite(each.values[name]) for each in (*revisions, revisions[-1])]}
        for name in varying
    ]
    data = {"times": [time.isoformat() for time in times], "notes": [*notes, notes[-1]], "series": series}
    pairs = [(name, *(format_value(each.values[name]) for each in (first, last))) for name in varying]
    summary = "; ".join(f"{name} {before} → {after}" for name, before, after in pairs)
    return Chart("The values by the time from which they are known", "steps", summary, data)


def _cause(causes: Sequence[dict[str, Any]]) -> str:
    """The number of rows that caused a revision, and the first of their files."""
    if not causes:
        return "its causes are no longer told apart"
    came = sum(cause["diff"] > 0 for cause in causes)
    went = len(causes) - came
    parts = [f"{came:,} came" if came else "", f"{went:,} taken back" if went else ""]
    files = list(dict.fromkeys(cause["file"] or "?" for cause in causes))
    more = f" and {len(files) - 1:,} more files" if len(files) > 1 else ""
    return f"{', '.join(part for part in parts if part)}, {files[0]}{more}"


def state_charts(lake: HeldLake, source: Source, entity: str, known_times: Sequence[datetime]) -> list[Chart]:
    """The components of an entity's state over event time, a line for each time at which the state was known.

    Args:
        lake: the lake, of which the trace is read.
        source: the source, which has `state`.
        entity: the entity.
        known_times: times from which a revision of the state is known, oldest first.

    Returns:
        No chart for an entity with more than 2,000 deltas, or of a source whose horizon has moved: its trace no longer
        has all deltas.
    """
    point = ReadPoint.open(lake, source)
    if source.state is None or point.frontiers.horizon_us != NO_HORIZON_US or not known_times:
        return []
    reached = pa.scalar(instant(point.publication.reached_us))
    of_entity = (pc.field("entity") == entity) & (pc.field("event_time") < reached)
    columns = dict.fromkeys([*columns_read(source), "entity", "event_time", "time"])
    rows = stored_counting_rows(lake, source, point.frontiers.arrangement, list(columns), of_entity).whole()
    if not 0 < rows.num_rows <= _MOST_DELTAS:
        return []
    events = _spread(sorted({time for time in rows["event_time"].to_pylist() if time is not None}), _EVENTS)
    times = _spread(list(known_times), _KNOWN)
    states = _states(rows, source, events, times)
    components = list(source.state.components)[:_MOST_VALUES]
    return [_state_chart(name, place, events, times, states) for place, name in enumerate(components)]


def _spread(values: list[datetime], most: int) -> list[datetime]:
    """Up to `most` values of a list, evenly spread, with the first and the last."""
    places = np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(int))
    return [values[place] for place in places]


_States = dict[tuple[int, int], list[Any]]
"""The vector of the state, by the places of the event time and of the time of knowledge."""


def _states(rows: pa.Table, source: Source, events: Sequence[datetime], known_times: Sequence[datetime]) -> _States:
    """The states at all pairs of times, folded at once: each pair is an entity of its own."""
    parts = []
    for i, event in enumerate(events):
        for j, time in enumerate(known_times):
            part = rows.filter((pc.field("event_time") <= event) & (pc.field("time") <= time))
            names = pa.array([f"{i}/{j}"] * part.num_rows, pa.string())
            parts.append(part.set_column(part.schema.get_field_index("entity"), "entity", names))
    folded = fold_rows(folded_columns(pa.concat_tables(parts), source), source)
    states: _States = {}
    for entity, vector in zip(folded["entity"].to_pylist(), folded["vector"].to_pylist(), strict=True):
        i, j = map(int, entity.split("/"))
        states[i, j] = vector
    return states


def _state_chart(
    name: str, place: int, events: Sequence[datetime], known_times: Sequence[datetime], states: _States
) -> Chart:
    def value(i: int, j: int) -> Any:
        return finite(states[i, j][place]) if (i, j) in states else None

    lines = [
        {"title": f"known at {format_value(time)}", "values": [value(i, j) for i in range(len(events))]}
        for j, time in enumerate(known_times)
    ]
    data = {"title": name, "times": [event.isoformat() for event in events], "lines": lines}
    titles = [f"known at {format_value(time)}" for time in known_times]
    table = [[event, *(value(i, j) for j in range(len(known_times)))] for i, event in enumerate(events)]
    last = format_value(value(len(events) - 1, len(known_times) - 1))
    n_known = len(known_times)
    summary = f"{name} at {len(events)} event times, as known at {n_known} times; the newest value is {last}"
    return Chart(f"{name} over event time", "known", summary, data, ["event time", *titles], table)
