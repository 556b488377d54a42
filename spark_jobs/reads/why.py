"""Why a published row has its values: the deltas behind it, and its revisions, each with the deltas that caused it.

Everything is read from the history of published tables and from the trace, without a Spark job. No record is kept for
this purpose alone. A delta is named by its file and line, and by the run that landed it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.columns import numbers
from spark_jobs.engine.restatement import CLOSING, LIVE
from spark_jobs.reads.landed import with_landings
from spark_jobs.reads.point import ReadPoint
from spark_jobs.reads.publications import PublicationEntry, first_with, publications
from spark_jobs.reads.row_keys import PublishedTable, published_table, row_key
from spark_jobs.restatement.cutoffs import CutoffsOfRows
from spark_jobs.restatement.stream_times import find_cutoffs
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import visible_rows
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.tables import STATE, VALIDITY
from spark_jobs.storage.descriptions.times import EPOCH, instant, micros, parse_time
from spark_jobs.storage.lakes.lake import TableReader
from spark_jobs.trace.source_plane import stored_counting_rows

Row = dict[str, Any]
_DELTA = ("row_id", "entity", "event_time", "time", "delta_id")
_CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Revision:
    """One published version of the row, its values by column, and the deltas that caused it.

    `known_to` is None for the version that is published now. `run_id` is the run that published the version.
    """

    known_from: Any
    known_to: Any
    revision: int
    run_id: str | None
    values: Row
    causes: list[Row]


@dataclass(frozen=True, slots=True)
class Why:
    """The row `key` of `table`: its revisions, oldest first, and the deltas behind its published values.

    `deltas` has all `n_deltas` of them, or the first ones if a limit was given. A delta has `file`, `line`, `run_id`,
    `landing`, `row_id`, `entity`, `event_time`, `time`, `delta_id`, and the columns that the row is made of. As a cause
    it also has `diff`, −1 for a delta that was taken back. Causes are updates after `since`: up to it visible times are
    no longer told apart, so the publication that took an update in is not known.
    """

    table: str
    key: Row
    revisions: list[Revision] = field(default_factory=list)
    deltas: list[Row] = field(default_factory=list)
    n_deltas: int = 0
    since: datetime = EPOCH

    @property
    def published(self) -> Revision | None:
        """The revision that is published now; None if there is none."""
        return self.revisions[-1] if self.revisions and self.revisions[-1].known_to is None else None


def why(lake: TableReader, source: Source, table: str, key: Sequence[str], limit: int = 0) -> Why:
    """The revisions of the row of `table` with this key, and up to `limit` deltas behind it (0: all), oldest first.

    `table` is `silver.<definition>`, `gold.<source>`, or the name alone. `key` gives the key's columns in order, or
    each as `column=value`; a window's key ends with `window_start` (adaptive ones: `window_id`; emissions: `emission`).

    Raises:
        ParameterError: no such table, or the key does not fit it.
        NotPublished: nothing is published yet.
    """
    asked = published_table(source, table)
    wanted = row_key(asked, key)
    point = ReadPoint.open(lake, source)
    read = _Read(lake, point, asked, wanted)
    changes = read.changes()
    since = instant(point.frontiers.arrangement.since.time or 0)
    updates = read.updates(changes) if changes else []
    causes = list(_causes_after_since(read.causes(changes, updates), since))
    explanation = Why(asked.name, wanted, _revisions(changes, {}, asked), since=since)
    behind = [] if explanation.published is None else read.behind(explanation.published, updates)
    first_deltas = behind[:limit] if limit else behind
    named = with_landings(lake, source, [*[update for _, update in causes], *first_deltas], asked.read)
    by_time: dict[Any, list[Row]] = {}
    for (time, _), cause in zip(causes, named, strict=False):
        by_time.setdefault(time, []).append(cause)
    revisions = _revisions(changes, by_time, asked)
    return replace(explanation, revisions=revisions, deltas=named[len(causes) :], n_deltas=len(behind))


@dataclass(frozen=True)
class _Read:
    """The changes and updates of the row with `key` in the lake's files, as of the publication in force."""

    lake: TableReader
    point: ReadPoint
    table: PublishedTable
    key: Mapping[str, str]

    @cached_property
    def _publications(self) -> list[PublicationEntry]:
        """The publications, oldest first."""
        return publications(self.lake, self.point.source, self.point.publication)

    @cached_property
    def _scalars(self) -> dict[str, pa.Scalar]:
        """The key's values as the files have them."""
        definition = self.table.definition
        types = pa.schema([]) if definition is None else definition.result_schema()
        scalars = {}
        for column, text in self.key.items():
            if column == "window_start":
                scalars[column] = pa.scalar(parse_time(text), INSTANT)
            else:
                kind = types.field(column).type if column in types.names else pa.string()
                scalars[column] = pa.scalar(text).cast(kind)
        return scalars

    def changes(self) -> list[Row]:
        """The changelog of the row by time, each change with the run that published it.

        A retraction comes before an insertion of the same time.
        """
        definition = self.table.definition
        history = STATE if definition is None else definition.table()
        hidden = {*(column.name for column in VALIDITY), *(() if definition else ("source",))}
        values = [column.name for column in history.columns if column.name not in hidden]
        wanted = pc.field("source") == self.point.source.name if definition is None else pc.scalar(True)
        for column, value in self._scalars.items():
            wanted = wanted & _equals(column, value)
        visible = wanted & visible_rows(self.point.publication)
        columns = [*values, *(column.name for column in VALIDITY)]
        rows = self.lake.stored(history, columns, visible).whole().to_pylist()
        published = instant(self.point.publication.published_us)
        changelog: list[Row] = []
        run_ids = {publication.known_from: publication.run_id for publication in self._publications}
        for time, diff, eras in (("known_from", 1, (LIVE, _CLOSED)), ("known_to", -1, (CLOSING, _CLOSED))):
            for row in rows:
                if row["era"] in eras and row[time] < published:
                    of_row = {name: row[name] for name in (*values, "revision")}
                    of_change = {"time": row[time], "diff": diff, "run_id": run_ids.get(row[time])}
                    changelog.append(of_row | of_change)
        return sorted(changelog, key=lambda row: (row["time"], row["diff"]))

    def updates(self, changes: Sequence[Row]) -> list[Row]:
        """The updates in the trace that can have made these changes of the row, in order of their event times."""
        source, definition = self.point.source, self.table.definition
        if definition is None:
            of_row = _equals("entity", self._scalars["entity"])
        else:
            of_row = _within(definition, changes)
            for column in definition.key:
                of_row = of_row & _equals(f"c_{column}", self._scalars[column])
        time = "event_time" if definition is None else f"t_{definition.time}"
        read = [f"c_{column}" for column in self.table.read]
        columns = [*_DELTA, time, *read, "seq_no", "diff", "token"]
        rows = stored_counting_rows(self.lake, source, self.point.frontiers.arrangement, columns, of_row).whole()
        rows = rows.append_column("_time", rows.column(time).cast(pa.int64()))
        rows = rows.append_column("_lo", pa.array(source.drops.starts(numbers(rows["seq_no"]))))
        rows = rows.sort_by([("event_time", "ascending"), ("row_id", "ascending")])
        named = {f"c_{column}": column for column in self.table.read}
        names = [*_DELTA, *read, "_time", "_lo", "seq_no", "diff", "token"]
        return [{named.get(name, name): row[name] for name in names} for row in rows.to_pylist()]

    def causes(self, changes: Sequence[Row], updates: Sequence[Row]) -> Iterator[Row]:
        """Each publication that changed the row, with each update that it took in and that can have caused a change.

        `time` is the time of the publication's changes; the update's columns are called `update_…`.
        """
        by_publication: dict[datetime, list[Row]] = {}
        for update in updates:
            publication = first_with(self._publications, update)
            if publication is not None:
                by_publication.setdefault(publication.known_from, []).append(update)
        by_time: dict[datetime, list[Row]] = {}
        for change in changes:
            by_time.setdefault(change["time"], []).append(change)
        for time, of_time in by_time.items():
            for update in by_publication.get(time, ()):
                if any(self._touches(change, update) for change in of_time):
                    cause = {name: update[name] for name in (*_DELTA, "seq_no", "diff", "token")}
                    yield {"time": time, **{f"update_{name}": value for name, value in cause.items()}}

    def _touches(self, change: Row, update: Row) -> bool:
        """True if the update, which has the row's key, can have made this change."""
        definition = self.table.definition
        if definition is None:
            return True
        low, high = _changed_by(definition, [change])
        placed = _place(update, definition)
        return placed is not None and low <= placed <= high

    def behind(self, published: Revision, updates: Sequence[Row]) -> list[Row]:
        """The deltas from which the published row is made, each with the `token` under which it is in the trace."""
        definition, reached = self.table.definition, instant(self.point.publication.reached_us)
        known_until = instant(self.point.known_us)
        due = (row for row in updates if row["time"] <= known_until and row["event_time"] < reached)
        near = [row for row in due if definition is None or self._is_near(row, definition, published)]
        deltas = _net_deltas({name: value for name, value in row.items() if name != "seq_no"} for row in near)
        if definition is not None:
            needed = [c.removeprefix("v_") for c in definition.required if c.startswith("v_")]
            whole = [row for row in deltas if all(row[column] is not None for column in needed)]
            deltas = _counting_deltas(whole, definition, self.key, published, self._cutoffs(definition))
        return [{name: value for name, value in row.items() if name not in ("_time", "_lo")} for row in deltas]

    def _cutoffs(self, definition: Definition) -> CutoffsOfRows | None:
        """The cutoffs of the rows that count in the publication in force; None: those are the starts of drops."""
        if definition.grace_us is None:
            return None
        published = self.point.publication
        due = pc.field("time") < pa.scalar(published.published_us, INSTANT)
        due &= pc.field("event_time") < pa.scalar(published.reached_us, INSTANT)

        def read(columns: Sequence[str], where: pc.Expression | None) -> StoredRows:
            chosen, state = due if where is None else due & where, self.point.frontiers.arrangement
            return stored_counting_rows(self.lake, self.point.source, state, columns, chosen)

        return find_cutoffs(definition, read, (published.published_us, published.reached_us)).now

    def _is_near(self, row: Row, definition: Definition, published: Revision) -> bool:
        """True if a row of the key can count in the published window, by its time."""
        start, end = micros(_start(self.key, published)), micros(published.values["window_end"])
        placed = _place(row, definition)
        return placed is not None and start <= placed <= end


def _place(update: Row, definition: Definition) -> int | None:
    """The time at which an update counts, in microseconds; None: it has no time."""
    if update["_time"] is None:
        return None
    times, lo = (np.array([update[name]], np.int64) for name in ("_time", "_lo"))
    return int(definition.places(times, lo)[0])


def _changed_by(definition: Definition, changes: Sequence[Row]) -> tuple[int, int]:
    """The first and the last time, in microseconds, of rows that can have made one of these changes of a window."""
    starts, ends = (np.array([micros(c[b]) for c in changes], np.int64) for b in ("window_start", "window_end"))
    low, high = definition.kind.changed_by(starts, ends)
    return int(low.min()), int(high.max())


def _within(definition: Definition, changes: Sequence[Row]) -> pc.Expression:
    """A condition on updates: their time can have made one of the changes.

    Where late rows move to the start of their drop, that start counts as well.
    """
    low, high = _changed_by(definition, changes)
    # rows that count in a window are within its bounds, which may be wider
    low = min(low, *(micros(change["window_start"]) for change in changes))
    low, high = definition.times_at_places(low, max(high, *(micros(change["window_end"]) for change in changes)))
    time = pc.field(f"t_{definition.time}")
    within = (time >= pa.scalar(low, INSTANT)) & (time <= pa.scalar(high, INSTANT))
    if definition.moves_late_rows:
        drops = definition.source.drops
        first, last = (drops.number_at(bound) for bound in (low, high))
        within = within | ((pc.field("seq_no") >= first) & (pc.field("seq_no") <= last))
    return within


def _equals(column: str, value: pa.Scalar) -> pc.Expression:
    """A condition: the column equals the value. NaN equals NaN, as in Spark."""
    if pa.types.is_floating(value.type) and math.isnan(value.as_py()):
        return pc.field(column).is_nan()
    return pc.field(column) == value


def _causes_after_since(causes: Iterable[Row], since: datetime) -> Iterator[tuple[Any, Row]]:
    """The time of a change and an update behind it, for each cause whose update is later than `since`.

    Merged batches have updates of times up to since at since itself. There they look as if one publication had taken in
    all of them.
    """
    for row in causes:
        update = {name.removeprefix("update_"): value for name, value in row.items() if name != "time"}
        if update["time"] > since:
            yield row["time"], update


def _revisions(changes: list[Row], causes: Mapping[Any, list[Row]], table: PublishedTable) -> list[Revision]:
    """The revisions of a row by its changelog: an insertion begins a revision, the next retraction ends it."""
    hidden = {*table.key, "time", "diff", "revision", "run_id"}
    revisions: list[Revision] = []
    for change in changes:
        if change["diff"] > 0:
            values = {name: value for name, value in change.items() if name not in hidden}
            of_time = sorted(causes.get(change["time"], []), key=lambda c: (c["event_time"], c["row_id"]))
            revisions.append(Revision(change["time"], None, change["revision"], change["run_id"], values, of_time))
        elif revisions:
            last = revisions[-1]
            revisions[-1] = Revision(
                last.known_from, change["time"], last.revision, last.run_id, last.values, last.causes
            )
    return revisions


def _net_deltas(updates: Iterable[Row]) -> list[Row]:
    """The deltas whose diffs sum to more than zero over all visible times, in the order of their first updates.

    Each has the time and the token of the last update that brought it. The diffs are summed in Python, since a function
    that groups rows would take -0.0 for 0.0.
    """
    sums: dict[tuple[Any, ...], int] = {}
    rows: dict[tuple[Any, ...], Row] = {}
    for update in updates:
        row = {name: value for name, value in update.items() if name not in ("diff", "time", "token")}
        # the text of a float tells 0.0 from -0.0, and is the same for every NaN
        same = tuple(repr(value) if isinstance(value, float) else value for value in row.values())
        sums[same] = sums.get(same, 0) + update["diff"]
        last = {name: update[name] for name in ("time", "token")}
        seen = rows.setdefault(same, row | last)
        if update["diff"] > 0:
            seen.update({name: max(seen[name], last[name]) for name in last})
    return [row for same, row in rows.items() if sums[same] > 0]


def _start(key: Mapping[str, str], published: Revision) -> datetime:
    """The start of the window: of an adaptive window from the row's values, else from the text in the key."""
    stored_start = published.values.get("window_start")
    start: datetime = parse_time(key["window_start"]) if stored_start is None else stored_start
    return start


def _counting_deltas(
    rows: list[Row],
    definition: Definition,
    key: Mapping[str, str],
    published: Revision,
    late_rows: CutoffsOfRows | None,
) -> list[Row]:
    """The rows that count in the published window, by the same rules as the kernel of the windows."""
    times, lo, row_ids = (np.array([row[name] for row in rows], np.int64) for name in ("_time", "_lo", "row_id"))
    cutoffs = lo if late_rows is None else late_rows.of(row_ids, definition.kind.in_ticks(times))
    judged = definition.lateness(times, cutoffs)
    first = micros(_start(key, published))
    last = micros(published.values["window_end"]) - int(definition.kind.half_open)
    ends = judged.last if definition.kind.halo is None else np.full(times.size, last)
    counts = (judged.placed >= first) & (judged.placed <= last) & (judged.moved | (ends >= judged.min_end))
    if "emitted_at" in definition.own_columns and published.values["trigger"] != "end":
        # an early result has the rows before its instant, or up to the row that fired
        emitted = micros(published.values["emitted_at"])
        counts &= judged.placed < emitted if published.values["trigger"] == "time" else judged.placed <= emitted
    return [row for row, counted in zip(rows, counts & ~judged.discarded, strict=True) if counted]
