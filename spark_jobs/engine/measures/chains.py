"""Faults of the segments that an attempt wrote, the ends of their chains, and the deltas that the chains refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns.lists import Lists, lengths
from spark_jobs.engine.columns.plain import Ints, are, numbers
from spark_jobs.engine.measures.states import gains
from spark_jobs.engine.measures.sums import Adds
from spark_jobs.engine.measures.versions import at_wrong_time
from spark_jobs.engine.restatement.comparison import LIVE

REFUSING = "segments_with_refused_deltas"
"""Measure: segments, written or closed, in which the chain skips a delta, or skipped one."""

_PLACE = ("start_time", "start_row", "known_from")


def judge_segments(segments: pa.Table, *, everything: bool, known_from_us: int) -> Adds:
    """The amounts that each segment of an attempt adds to the measures of chains.

    They are the deltas that the chain gained by it, including those that retention dropped, and the faults."""
    by = gains(segments, everything=everything)
    return {
        "deltas_folded": by * numbers(segments["deltas"]) + numbers(segments["dropped"]),
        "segments_at_wrong_time": at_wrong_time(segments, known_from_us),
        REFUSING: lengths(segments["refusals"]) > 0,
    }


def ends_of_chains(tables: Iterable[pa.Table], *, token: int) -> pa.Table:
    """One row per entity of which the attempt `token` wrote a segment, with the number of ends of its chain.

    An end is a standing segment without an end time.

    Args:
        tables: the segments that a publication over the attempt could show, some at a time: the columns entity, era,
            start_row, end_time, known_from, token. Of segments with an end time, the attempt's own are enough.
    """
    segments = pa.concat_tables(tables)
    written = pc.unique(segments["entity"].filter(pa.array(numbers(segments["token"]) == token)))
    of_written = segments.filter(pc.is_in(segments["entity"], value_set=written))
    ends = of_written.filter(pc.is_null(of_written["end_time"]))
    live = are(ends["era"], LIVE)
    marked = ends.select(["entity", "start_row", "known_from"])
    marked = marked.append_column("opened", pa.array(live.astype(np.int32)))
    marked = marked.append_column("closed", pa.array((~live).astype(np.int32)))
    place = ["entity", "start_row", "known_from"]
    counted = marked.group_by(place).aggregate([("opened", "sum"), ("closed", "sum")])
    is_current = pc.and_(pc.greater(counted["opened_sum"], 0), pc.equal(counted["closed_sum"], 0))
    current = counted.filter(is_current).group_by("entity").aggregate([([], "count_all")])
    at = pc.index_in(written, value_set=current["entity"].combine_chunks())
    counts = pc.fill_null(current["count_all"].combine_chunks().take(at), 0)
    return pa.table({"entity": written, "ends": counts})


def judge_ends(chains: pa.Table) -> Adds:
    """One for each chain that does not have exactly one end."""
    return {"chains_without_end": numbers(chains["ends"]) != 1}


def refused_deltas(segments: pa.Table, *, token: int) -> pa.Table:
    """The deltas that segments skip: entity, row_id, sign.

    `sign` is 1 for a delta that a segment of the attempt skips, and which is therefore in no state. It is -1 for a
    delta that a segment skipped which the attempt closes.

    Args:
        segments: the columns entity, era, start_time, start_row, known_from, token, row_ids, refusals, known_until.
            Of the published segments, at least those that the attempt closes.
    """
    skipping = segments.filter(pa.array(lengths(segments["refusals"]) > 0))
    is_own, live = numbers(skipping["token"]) == token, are(skipping["era"], LIVE)
    closings = skipping.filter(pa.array(is_own & ~live))
    closed = skipping.filter(pa.array(~is_own & live & _among(skipping, closings)))
    parts = [(1, skipping.filter(pa.array(is_own & live))), (-1, closed)]
    return pa.concat_tables([_refusals(part, sign) for sign, part in parts])


def _among(segments: pa.Table, others: pa.Table) -> np.ndarray:
    """Flags of the segments that have the same entity, start and `known_from` as one of the others."""
    wanted = set(_places(others))
    return np.array([place in wanted for place in _places(segments)], np.bool_)


def _places(segments: pa.Table) -> list[tuple[object, ...]]:
    columns = (segments["entity"].to_pylist(), *(numbers(segments[c], -1).tolist() for c in _PLACE))
    return list(zip(*columns, strict=True))


def _refusals(segments: pa.Table, sign: int) -> pa.Table:
    refusals, row_ids = Lists.of(segments["refusals"]), Lists.of(segments["row_ids"])
    until = Lists.of(segments["known_until"])
    # the list of ends is empty if all its elements would be null
    is_current = np.ones(len(row_ids.values), np.bool_)
    tells = np.repeat(until.lengths > 0, row_ids.lengths)
    is_current[tells] = ~until.given
    refused = np.flatnonzero((refusals.values > 0) & is_current)
    entities = segments["entity"].combine_chunks().take(pa.array(row_ids.owners[refused]))
    signs: Ints = np.full(len(refused), sign, np.int64)
    return pa.table({"entity": entities, "row_id": pa.array(row_ids.values[refused]), "sign": pa.array(signs)})


def past_balance(segments: pa.Table) -> pa.Array:
    """The entities whose chain skips deltas while retention drops some; it is unknown if skipped ones were dropped.

    Args:
        segments: the segments of the attempt: the columns entity, dropped, refusals.
    """
    marked = segments.select(["entity", "dropped"])
    marked = marked.append_column("skips", pa.array((lengths(segments["refusals"]) > 0).astype(np.int32)))
    by_entity = marked.group_by("entity").aggregate([("dropped", "sum"), ("skips", "max")])
    both = pc.and_(pc.greater(pc.fill_null(by_entity["dropped_sum"], 0), 0), pc.greater(by_entity["skips_max"], 0))
    return by_entity["entity"].filter(both).combine_chunks()


def weigh_updates(updates: pa.Table, refused: pa.Table) -> pa.Table:
    """The updates behind refused deltas, with their `diff` multiplied by the sign of the delta.

    Updates of deltas with sign -1 are left out if the run touches them.

    Args:
        updates: the columns entity, row_id, diff, touches and others.
        refused: see `refused_deltas`.
    """
    counts_by_sign = []
    for sign in (1, -1):
        of_sign = refused.filter(pc.equal(refused["sign"], sign)).select(["entity", "row_id"])
        of_key = of_sign.group_by(["entity", "row_id"]).aggregate([([], "count_all")])
        places = _index(of_key)
        pairs = zip(updates["entity"].to_pylist(), updates["row_id"].to_pylist(), strict=True)
        times = np.array([places.get(pair, 0) for pair in pairs], np.int64)
        if sign < 0:
            times[numbers(updates["touches"]) != 0] = 0
        weight = pa.array(numbers(updates["diff"]) * times * sign)
        counts_by_sign.append(updates.set_column(updates.schema.get_field_index("diff"), "diff", weight))
    both = pa.concat_tables(counts_by_sign)
    return both.filter(pc.not_equal(both["diff"], 0))


def _index(table: pa.Table) -> dict[tuple[str, int], int]:
    columns: Sequence[list[object]] = [table[c].to_pylist() for c in ("entity", "row_id", "count_all")]
    return {(entity, row_id): count for entity, row_id, count in zip(*columns, strict=True)}
