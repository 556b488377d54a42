"""Stream times: the cutoffs of rows under a `grace`.

The stream time at which a row arrived is the greatest time among the rows of its stream up to this one. Rows arrive in
the order of drops; within a drop in that of the source's `sequence`, if it has one, and then of row ids. A row that has
no value where its windows need one does not move the stream time.

So the rows of earlier drops decide about the rows of later ones. A run computes the cutoffs of all rows that are due,
drop after drop, for the rows that the last publication had and for those of now. If a row of both has another cutoff
now (an earlier drop came later, changed or went), all windows of the definition are worked out anew. Else only the rows
that came and went touch windows, as under a late policy.

Only rows that are late for a window are kept, so there are about as many as Kafka would have dropped.

Cost: O(rows that are due) of a few columns for each run, and memory for ROWS_AT_ONCE rows (or one drop).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.columns import Ints, numbers, sequence_texts
from spark_jobs.engine.windows import NO_TIME, stream_times
from spark_jobs.restatement.cutoffs import Cutoffs, CutoffsOfRows
from spark_jobs.restatement.touched import Scope
from spark_jobs.restatement.update_columns import required_columns, takes
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.lakes.lake import Lake

ROWS_AT_ONCE = 1 << 21
"""The approximate number of rows of which stream times are computed at a time."""
Read = Callable[[Sequence[str], pc.Expression | None], StoredRows]
"""Reads columns of the updates that are due and meet a condition."""
_IDENTITY = ("seq_no", "order", "row_id", "placed", "stream")


def with_cutoffs(lake: Lake, scope: Scope, definitions: Sequence[Definition]) -> Scope:
    """The scope with the cutoffs of the definitions that have a grace. All rows touch for definitions whose published
    rows have other cutoffs now."""
    graced = [definition for definition in definitions if definition.grace_us is not None]
    if not graced or scope.nothing_to_do():
        return scope
    cutoffs = {}
    for definition in graced:
        since = scope.publication.published_us, scope.publication.reached_us
        everything = scope.of_parts(definition.part).everything
        of_run = find_cutoffs(definition, partial(scope.due_rows, lake), since)
        cutoffs[definition.name] = Cutoffs(of_run.now, of_run.now) if everything or of_run.changed else of_run
        if of_run.changed and not everything:
            changed = (scope.changed or frozenset()) | {definition.part}
            scope = replace(scope, everything=True, changed=changed)
    return replace(scope, cutoffs=cutoffs)


def find_cutoffs(definition: Definition, read: Read, since: tuple[int, int]) -> Cutoffs:
    """The cutoffs of the rows that `read` reads. `since`: an update is published if its `time` is before the first of
    these times and its `event_time` before the second."""
    streams: dict[tuple[str, ...], int] = {}
    reached = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    late: list[list[pa.Table]] = [[], []]
    changed, grace_us = False, definition.grace_us
    assert grace_us is not None, "callers look for a grace"
    for drops in _blocks(read):
        rows = _standing_rows(definition, read(_columns(definition), drops), streams, since)
        code, placed = (np.array(rows[name]) for name in ("stream", "placed"))
        cutoffs = []
        for place, is_counted in enumerate((rows["before"].to_numpy(), rows["now"].to_numpy())):
            more = np.full(len(streams) - reached[place].size, NO_TIME, np.int64)
            reached[place] = np.concatenate([reached[place], more])
            moved = stream_times(code, np.where(is_counted, placed, NO_TIME), reached[place])
            cutoff = np.where(is_counted, moved - grace_us, NO_TIME)
            cutoff[definition.kind.last_instants(placed)[0] >= cutoff] = NO_TIME
            cutoffs.append(cutoff)
            listed = rows.select(["row_id"]).append_column("cutoff", pa.array(cutoff))
            late[place].append(listed.filter(pa.array(cutoff > NO_TIME)))
        stay = rows["before"].to_numpy() & rows["now"].to_numpy()
        changed |= bool((stay & (cutoffs[0] != cutoffs[1])).any())
    return Cutoffs(_late_rows(late[0]), _late_rows(late[1]), changed)


def _late_rows(tables: list[pa.Table]) -> CutoffsOfRows:
    if not tables:
        return CutoffsOfRows()
    rows = pa.concat_tables(tables).sort_by("row_id")
    return CutoffsOfRows(*(rows[name].to_numpy() for name in ("row_id", "cutoff")))


def _columns(definition: Definition) -> list[str]:
    grace, source = definition.window.grace, definition.source
    assert grace is not None, "callers look for a grace"
    of_rows = ["row_id", "seq_no", "time", "event_time", "diff", f"t_{definition.time}", *required_columns(definition)]
    named = [f"c_{column}" for column in (*definition.key, *grace.stream, *source.sequence)]
    return [*dict.fromkeys([*of_rows, *named])]


def _blocks(read: Read) -> Iterator[pc.Expression]:
    """Yield conditions on `seq_no` that cut the rows into blocks of whole drops, ascending, of about ROWS_AT_ONCE
    rows."""
    numbered: dict[int, int] = {}
    for table in read(["seq_no"], None).tables():
        drops, counts = np.unique(numbers(table["seq_no"]), return_counts=True)
        for drop, count in zip(drops.tolist(), counts.tolist(), strict=True):
            numbered[drop] = numbered.get(drop, 0) + count
    first, n_rows = min(numbered, default=0), 0
    for drop, count in sorted(numbered.items()):
        if n_rows and n_rows + count > ROWS_AT_ONCE:
            yield (pc.field("seq_no") >= first) & (pc.field("seq_no") < drop)
            first, n_rows = drop, 0
        n_rows += count
    if n_rows:
        yield pc.field("seq_no") >= first


def _standing_rows(
    definition: Definition, stored: StoredRows, streams: dict[tuple[str, ...], int], since: tuple[int, int]
) -> pa.Table:
    """The rows that move the stream time, in the order in which they arrived: `row_id`, `placed`, `stream` (its number
    in `streams`, to which new ones are added), and whether they stand `before` and `now`."""
    parts = [_moving_rows(definition, table, streams, since) for table in stored.tables()]
    rows = pa.concat_tables(parts) if parts else _no_rows()
    went = pc.unique(rows["row_id"].filter(pc.less(rows["diff"], 0)))
    doubtful = pc.is_in(rows["row_id"], value_set=went)
    several = rows.filter(doubtful).group_by(list(_IDENTITY)).aggregate([("diff", "sum"), ("published", "sum")])
    several = several.rename_columns([*_IDENTITY, "diff", "published"])
    rows = pa.concat_tables([rows.filter(pc.invert(doubtful)), several.select(rows.column_names)])
    for name, diffs in (("before", rows["published"]), ("now", rows["diff"])):
        rows = rows.append_column(name, pc.greater(diffs, 0))
    rows = rows.filter(pc.or_(rows["before"], rows["now"]))
    return rows.sort_by([(name, "ascending") for name in _IDENTITY[:3]])


def _no_rows() -> pa.Table:
    kinds: dict[str, pa.DataType] = dict.fromkeys((*_IDENTITY, "diff", "published"), pa.int64())
    return pa.schema([*(kinds | {"order": pa.string()}).items()]).empty_table()


def _moving_rows(
    definition: Definition, table: pa.Table, streams: dict[tuple[str, ...], int], since: tuple[int, int]
) -> pa.Table:
    """The updates of rows that can count, with the columns of `_no_rows`; `published` is `diff`, or 0 if fresh."""
    grace, source = definition.window.grace, definition.source
    assert grace is not None, "callers look for a grace"
    table = table.filter(pa.array(definition.can_count(table) & takes(definition, table)))
    diff = numbers(table["diff"])
    published = (numbers(table["time"]) < since[0]) & (numbers(table["event_time"]) < since[1])
    order = pa.nulls(table.num_rows, pa.string())
    if source.sequence:
        order = sequence_texts([table[f"c_{column}"] for column in source.sequence])
    columns = {
        "seq_no": pa.array(numbers(table["seq_no"])),
        "order": order.cast(pa.string()),
        "row_id": pa.array(numbers(table["row_id"])),
        "placed": pa.array(definition.kind.in_ticks(numbers(table[f"t_{definition.time}"]))),
        "stream": pa.array(_number_streams([table[f"c_{column}"] for column in grace.stream], table.num_rows, streams)),
        "diff": pa.array(diff),
        "published": pa.array(np.where(published, diff, 0)),
    }
    return pa.table(columns).cast(_no_rows().schema)


def _number_streams(columns: list[pa.ChunkedArray], n_rows: int, streams: dict[tuple[str, ...], int]) -> Ints:
    """The number of each row's stream, by the values in `columns`; null is a value of its own."""
    if not columns:
        streams.setdefault((), 0)
        return np.zeros(n_rows, np.int64)
    texts = {f"{place}": _text(column) for place, column in enumerate(columns)}
    rows = pa.table(texts | {"row": pa.array(np.arange(n_rows))})
    groups = rows.group_by([*texts], use_threads=False).aggregate([("row", "list")])
    of_row: Ints = np.empty(n_rows, np.int64)
    for *values, places in zip(*(groups[name].to_pylist() for name in texts), groups["row_list"], strict=True):
        of_row[places.values.to_numpy()] = streams.setdefault(tuple(values), len(streams))
    return of_row


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.binary_join_element_wise("v", column.cast(pa.string()), ""), "null")
