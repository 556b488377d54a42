"""Slow obvious twins of the gates' measures: rows as dicts of Python values, one at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pyarrow as pa

from spark_jobs.engine.measures import Adds
from spark_jobs.engine.measures.sums import Scaled

Row = dict[str, Any]


def added(adds: Adds) -> dict[str, list[int]]:
    """What a kernel says, as lists of Python numbers."""
    found = {}
    for name, addends in adds.items():
        if isinstance(addends, Scaled):
            found[name] = [int(value) * int(by) for value, by in zip(addends.values, addends.by, strict=True)]
        else:
            found[name] = [int(value) for value in addends]
    return found


def each(rows: pa.Table, judge: Any) -> dict[str, list[int]]:
    """What `judge` says of each row, by measure."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows.to_pylist():
        for name, value in judge(row).items():
            found[name].append(int(value))
    return dict(found)


def chunk(row: Row, timelines: list[str], arrays: list[str], bits: int) -> Row:
    n, ids, times = row["rows"], row["row_ids"], row["event_times"]

    def falls(values: list[Any]) -> bool:
        present = [v for v in values if v is not None]
        return any(b < a for a, b in pairwise(present))

    def loose(lo: Any, hi: Any, values: list[Any] | None) -> bool:
        present = [v for v in values or [] if v is not None]
        return (lo, hi) != ((min(present), max(present)) if present else (None, None))

    uneven = ids is None or times is None
    for column in ("row_ids", "event_times", *arrays):
        uneven = uneven or (n is not None and row[column] is not None and len(row[column]) != n)
    return {
        "chunk_rows": 1 if n is None else n,
        "chunks_with_unordered_row_ids": any(b <= a for a, b in pairwise(ids or [])),
        "chunks_with_foreign_row_ids": bool(ids)
        and row["seq_no"] is not None
        and any(i >> bits != row["seq_no"] for i in (min(ids), max(ids))),
        "chunks_with_uneven_arrays": uneven,
        "chunks_with_loose_bounds": loose(row["event_min"], row["event_max"], times)
        or any(loose(row[f"min_{t}"], row[f"max_{t}"], row[f"t_{t}"]) for t in timelines),
        "chunks_falsely_sorted": any(row[f"sorted_{t}"] is not False and falls(row[f"t_{t}"] or []) for t in timelines),
        "chunks_without_entity": row["entity"] is None,
        "rows_without_event_time": 1 if times is None else sum(t is None for t in times),
    }


def surplus(chunks: list[Row]) -> int:
    seen = Counter((c["landing"], c["diff"], i) for c in chunks for i in c["row_ids"] or [])
    return sum(n - 1 for n in seen.values())


def update(row: Row, intervals: dict[str, tuple[int, int]], sealed: int, merged: list[str]) -> Row:
    time, event_time, inside = row["time"], row["event_time"], intervals.get(row["batch"])
    return {
        "updates_below_previous_seal": time is not None and time < sealed and row["batch"] not in merged,
        "updates_outside_batch": time is None or inside is None or not inside[0] <= time <= inside[1],
        "updates_without_diff": not row["diff"],
        "updates_without_identity": None in (row["row_id"], row["entity"], event_time, time),
        "visible_before_event": None not in (time, event_time) and time < event_time,
        "updates_added": row["diff"] or 0,
    }


def out_of_order(updates: list[Row]) -> list[bool]:
    """Nulls as the kernel has them: of numbers 0, and no entity is before another."""

    def belongs_before(one: Row, other: Row) -> bool:
        if one["batch"] is None or one["batch"] != other["batch"] or None in (one["entity"], other["entity"]):
            return False
        keys = [(row["entity"].encode(), row["event_time"] or 0, row["row_id"] or 0) for row in (one, other)]
        return keys[0] < keys[1]

    return [False, *(belongs_before(after, before) for before, after in pairwise(updates))][: len(updates)]


def _sign(diff: int | None) -> int | None:
    return None if diff is None else (diff > 0) - (diff < 0)


def repeated(updates: list[Row]) -> int:
    alike = Counter((u["batch"], u["row_id"], u["time"], _sign(u["diff"]), u["below_horizon"]) for u in updates)
    return sum(n > 1 for n in alike.values())


def changed_parts(before: Row, after: Row, stored: Row) -> list[tuple[str, str]]:
    """The handles of batches in both states, each with each part of it that has changed."""
    nothing = (0, 0, 0, "")
    found = []
    for handle, (bounds, level, facts) in before.items():
        if handle not in after:
            continue
        parts = zip(("bounds", "level", "updates"), (bounds, level, facts), after[handle], strict=True)
        found += [(handle, part) for part, one, other in parts if one != other]
        *counts, checksum = facts
        *stored_counts, of_files = stored.get(handle, nothing)
        alike = checksum.split(".")[0] == of_files.split(".")[0]
        if counts != stored_counts or (checksum and counts[0] and checksum != of_files and alike):
            found.append((handle, "files"))
    return found


def versions(rows: list[Row], identity: list[str], token: int) -> dict[str, int]:
    """How many things show each fault."""
    things: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        things[tuple(row[c] for c in identity)].append(row)
    faults = Counter[str]()
    for of_thing in things.values():
        own = [row for row in of_thing if row["token"] == token]
        if not own:
            continue
        opened = Counter(row["known_from"] for row in of_thing if row["era"] == "live")
        closed = Counter(row["known_from"] for row in of_thing if row["era"] == "closing")
        standing = [at for at in opened if not closed[at]]
        faults["repeated"] += len(standing) > 1 or max(opened.values(), default=0) > 1
        faults["closings_of_nothing"] += any(not opened[at] for at in closed) or max(closed.values(), default=0) > 1
        new = max((r["revision"] for r in own if r["era"] == "live"), default=None)
        old = max((r["revision"] for r in own if r["era"] == "closing"), default=-1)
        faults["changed_without_revision"] += new is not None and new != old + 1
    return dict(faults)


def wrong_time(row: Row, known_from: int) -> bool:
    if row["era"] == "live":
        return not (row["known_from"] == known_from and row["known_to"] is None)
    ends = row["known_to"] == known_from and row["known_from"] is not None and row["known_from"] < known_from
    return not ends


def state(row: Row, vector: str, named: bool, width: int | None, reached: int, known_from: int, sums: bool) -> Row:
    live = row["era"] == "live"
    wanted = len(row["seen"] or []) if width is None else width
    arrays = [*(["names"] if named else []), vector, "seen"]
    beyond = sums and None in (row[vector] or [])
    return {
        "states_of_wrong_width": live and any(row[a] is None or len(row[a]) != wanted for a in arrays),
        "states_without_deltas": live and (row["delta_count"] or 0) < 1,
        "states_beyond_reached": live and row["timestamp"] is not None and row["timestamp"] >= reached,
        "changes_at_wrong_time": wrong_time(row, known_from),
        "states_with_overflown_sums": live and beyond,
        "closed_states_with_overflown_sums": not live and beyond,
    }


def ends(rows: list[Row], token: int) -> dict[str, int]:
    """Per entity that the attempt wrote of, how many segments end its chain and stand."""
    found = {row["entity"]: 0 for row in rows if row["token"] == token}
    for entity in found:
        of_chain = [row for row in rows if row["entity"] == entity and row["end_time"] is None]
        opened = {(r["start_row"], r["known_from"]) for r in of_chain if r["era"] == "live"}
        closed = {(r["start_row"], r["known_from"]) for r in of_chain if r["era"] == "closing"}
        found[entity] = len(opened - closed)
    return found


def refused(segments: list[Row], token: int) -> Counter[tuple[str, int, int]]:
    """(entity, row_id, sign) of the deltas that the attempt's segments skip, and of those that they replace."""
    place = ("entity", "start_time", "start_row", "known_from")
    skipping = [s for s in segments if s["refusals"]]
    closed = [tuple(s[c] for c in place) for s in skipping if s["token"] == token and s["era"] == "closing"]
    found = Counter[tuple[str, int, int]]()
    for segment in skipping:
        if segment["era"] != "live":
            continue
        own = segment["token"] == token
        if not own and tuple(segment[c] for c in place) not in closed:
            continue
        until = segment["known_until"] or [None] * len(segment["row_ids"])
        for row_id, refusal, end in zip(segment["row_ids"], segment["refusals"], until, strict=True):
            if refusal and end is None:
                found[segment["entity"], row_id, 1 if own else -1] += 1
    return found


def drops(chunks: list[Row], columns: list[str], start: int, every: int) -> dict[tuple[int, int], Row]:
    """What chunks tell of drops, row by row."""
    found: dict[tuple[int, int], Row] = {}
    for chunk in chunks:
        lo = start + chunk["seq_no"] * every
        told = found.setdefault(
            (chunk["landing"], chunk["seq_no"]), {"late_rows": 0, "late_by_max": 0, "nulls": dict.fromkeys(columns, 0)}
        )
        for time in chunk["event_times"]:
            if time is not None and time < lo:
                told["late_rows"] += chunk["diff"]
                if chunk["diff"] > 0:
                    told["late_by_max"] = max(told["late_by_max"], lo - time)
        for column in columns:
            values = chunk[f"c_{column}"]
            lacking = [None] * chunk["rows"] if values is None else values
            told["nulls"][column] += chunk["diff"] * sum(value is None for value in lacking)
    return found
