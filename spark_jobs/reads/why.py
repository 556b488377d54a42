"""Why a published row says what it says: the deltas behind it, and its revisions with what caused each.

Everything is read from published names and the trace; nothing of it is kept for this alone. A delta is named by the
file and line that it stood in, and the run that landed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.definition import Definition
from spark_jobs.reads.landed import with_landings
from spark_jobs.reads.point import ReadPoint
from spark_jobs.reads.row_keys import PublishedTable, published_table, row_key
from spark_jobs.restatement.touched import at
from spark_jobs.restatement.windows import drop_start
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.times import EPOCH, instant, micros, parsed, utc_rows
from spark_jobs.trace.source_plane import counting_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Row = dict[str, Any]
_DELTA = ("row_id", "entity", "event_time", "time", "delta_id")


@dataclass(frozen=True, slots=True)
class Revision:
    """One published version of the row, its values by column, and the deltas that caused it.

    `known_to` is None while it holds. `run_id` is the run that published it.
    """

    known_from: Any
    known_to: Any
    revision: int
    run_id: str | None
    values: Row
    causes: list[Row]


@dataclass(frozen=True, slots=True)
class Why:
    """The row `key` of `table`: revisions oldest first, and the deltas behind what is published now, all `n_deltas` of
    them or the first.

    A delta: `file`, `line`, `run_id`, `landing`, `row_id`, `entity`, `event_time`, `time`, `delta_id`, and the columns
    that the row is made of; as a cause also `diff`, −1 for one that was taken back. Causes are updates after `since`:
    up to it visible times are no longer told apart, so that it can't be said which publication took an update in.
    """

    table: str
    key: Row
    revisions: list[Revision] = field(default_factory=list)
    deltas: list[Row] = field(default_factory=list)
    n_deltas: int = 0
    since: datetime = EPOCH

    @property
    def published(self) -> Revision | None:
        """What is published now, if anything is."""
        return self.revisions[-1] if self.revisions and self.revisions[-1].known_to is None else None


def why(lake: Lake, source: Source, table: str, key: Sequence[str], limit: int = 0) -> Why:
    """Why the row of `table` with this key is what it is; up to `limit` deltas (0: all), oldest first.

    `table` is `silver.<definition>`, `gold.<source>`, or the name alone. `key` gives the key's columns in order, or
    each as `column=value`; a window's key ends with `window_start` (adaptive ones: `window_id`).

    Raises:
        ParameterError: no such table, or the key does not fit it.
        NotPublished: nothing is published yet.
    """
    asked = published_table(source, table)
    wanted = row_key(asked, key)
    point = ReadPoint.open(lake, source)
    changes = utc_rows(_of(lake.spark.table(f"{asked.name}_changes"), asked, wanted).orderBy("time", "diff"))
    causes = _of(lake.spark.table(f"{asked.name}_causes"), asked, wanted)
    taken_in = utc_rows(causes.select("time", *[c for c in causes.columns if c.startswith("update_")]).distinct())
    since = instant(point.frontiers.arrangement.since.time or 0)
    told = list(_told_apart(taken_in, since))
    found = Why(asked.name, wanted, _revisions(changes, {}, asked), since=since)
    behind = [] if found.published is None else _behind(lake, point, asked, found.published, wanted)
    shown = behind[:limit] if limit else behind
    named = with_landings(lake, source, [*[update for _, update in told], *shown], asked.read)
    by_time: dict[Any, list[Row]] = {}
    for (time, _), cause in zip(told, named, strict=False):
        by_time.setdefault(time, []).append(cause)
    revisions = _revisions(changes, by_time, asked)
    return replace(found, revisions=revisions, deltas=named[len(told) :], n_deltas=len(behind))


def _of(frame: DataFrame, table: PublishedTable, key: Mapping[str, str]) -> DataFrame:
    for column, type_ in table.key.items():
        frame = frame.where(F.col(column) == F.lit(key[column]).cast(type_))
    return frame


def _told_apart(causes: Iterable[Row], since: datetime) -> Iterator[tuple[Any, Row]]:
    """The time of a change, and an update that its publication took in, for each whose own time is still known: merged
    batches hold updates of up to since at since, where they look as if one publication had taken in all of them."""
    for row in causes:
        update = {name.removeprefix("update_"): value for name, value in row.items() if name != "time"}
        if update["time"] > since:
            yield row["time"], update


def _revisions(changes: list[Row], causes: Mapping[Any, list[Row]], table: PublishedTable) -> list[Revision]:
    """Insertions in order of time, each with the retraction that follows it."""
    hidden = {*table.key, "time", "diff", "revision", "run_id"}
    found: list[Revision] = []
    for change in changes:
        if change["diff"] > 0:
            values = {name: value for name, value in change.items() if name not in hidden}
            of_time = sorted(causes.get(change["time"], []), key=lambda c: (c["event_time"], c["row_id"]))
            found.append(Revision(change["time"], None, change["revision"], change["run_id"], values, of_time))
        elif found:
            last = found[-1]
            found[-1] = Revision(last.known_from, change["time"], last.revision, last.run_id, last.values, last.causes)
    return found


def _behind(lake: Lake, point: ReadPoint, table: PublishedTable, published: Revision, key: Row) -> list[Row]:
    """The deltas that stand behind the row, each with the `token` under which the trace holds it."""
    rows = counting_rows(lake, point.source, point.frontiers.arrangement)
    rows = rows.where((F.col("time") <= at(point.known_us)) & (F.col("event_time") < at(point.publication.reached_us)))
    rows = rows.where(_near(table, published, key))
    read = [F.col(f"c_{column}").alias(column) for column in table.read]
    own = F.col("event_time") if table.definition is None else F.col(f"t_{table.definition.time}")
    placing = {"_time": F.unix_micros(own), "_lo": drop_start(point.source)}
    placed = [column.alias(name) for name, column in placing.items()]
    updates = rows.select(*_DELTA, *read, *placed, "diff", "token").orderBy("event_time", "row_id")
    found = _standing(utc_rows(updates))
    if table.definition is not None:
        needed = [c.removeprefix("v_") for c in table.definition.required if c.startswith("v_")]
        whole = [row for row in found if all(row[column] is not None for column in needed)]
        found = _counting(whole, table.definition, key, published)
    return [{name: value for name, value in row.items() if name not in placing} for row in found]


def _standing(updates: Iterable[Row]) -> list[Row]:
    """The deltas whose diffs sum to more than zero over all visible times, in the order in which each first comes; each
    with the time and the token of the last update that brought it.

    Not summed by Spark: it takes -0.0 for 0.0 where it groups, and shows both as 0.0.
    """
    sums: dict[tuple[Any, ...], int] = {}
    rows: dict[tuple[Any, ...], Row] = {}
    for update in updates:
        row = {name: value for name, value in update.items() if name not in ("diff", "time", "token")}
        # the text of a float tells its zeros apart, and is one for all that are not a number
        same = tuple(repr(value) if isinstance(value, float) else value for value in row.values())
        sums[same] = sums.get(same, 0) + update["diff"]
        last = {name: update[name] for name in ("time", "token")}
        seen = rows.setdefault(same, row | last)
        if update["diff"] > 0:
            seen.update({name: max(seen[name], last[name]) for name in last})
    return [row for same, row in rows.items() if sums[same] > 0]


def _near(table: PublishedTable, published: Revision, key: Row) -> Column:
    """Whether an update is of the row's key and may count in it."""
    if table.definition is None:
        return F.col("entity") == F.lit(key["entity"])
    condition = F.lit(True)
    for column in table.definition.key:
        condition = condition & (F.col(f"c_{column}") == F.lit(key[column]).cast(table.key[column]))
    start, end = (F.lit(micros(time)) for time in (_start(key, published), published.values["window_end"]))
    near = F.unix_micros(f"t_{table.definition.time}").between(start, end)
    if table.definition.moves_late_rows:
        near = near | drop_start(table.definition.source).between(start, end)
    return condition & near


def _start(key: Row, published: Revision) -> datetime:
    """When the window starts: its key says it as text, an adaptive one's row as a time."""
    told = published.values.get("window_start")
    start: datetime = parsed(key["window_start"]) if told is None else told
    return start


def _counting(rows: list[Row], definition: Definition, key: Row, published: Revision) -> list[Row]:
    """Those of the rows that count in the window, as the kernel of the windows decides."""
    times, lo = (np.array([row[name] for row in rows], np.int64) for name in ("_time", "_lo"))
    judged = definition.lateness(times, lo)
    first = micros(_start(key, published))
    last = micros(published.values["window_end"]) - int(definition.kind.half_open)
    ends = judged.last if definition.kind.halo is None else np.full(times.size, last)
    counts = (judged.placed >= first) & (judged.placed <= last) & (judged.moved | (ends >= judged.min_end))
    return [row for row, counted in zip(rows, counts & ~judged.discarded, strict=True) if counted]
