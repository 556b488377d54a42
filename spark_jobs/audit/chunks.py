"""The part of the audit that checks chunks one by one: a chunk's own columns must agree with its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.engine.columns import Lists, numbers
from spark_jobs.engine.measures import judge_chunks
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.descriptions.tables import chunks

_FOREIGN, _UNEVEN = "chunks_with_foreign_row_ids", "chunks_with_uneven_arrays"
_FAULTS = {
    "chunks_with_unordered_row_ids": "its row ids do not ascend",
    _FOREIGN: "seq_no is not the drop of its last row",
    _UNEVEN: "its lists are not of one length",
    "chunks_with_loose_bounds": "its bounds are not those of its times",
    "chunks_falsely_sorted": "it claims an order that its times do not have",
    "chunks_without_entity": "it has no entity",
}


def columns_of_chunks(source: Source) -> list[str]:
    """The columns of a chunk that are compared with each other."""
    bounds = [f"{what}_{t}" for t in source.timelines for what in ("t", "min", "max", "sorted")]
    lists = ["row_ids", "event_times", "delta_ids", *(f"c_{column}" for column in source.columns)]
    return ["chunk_id", "entity", "seq_no", "rows", "event_min", "event_max", *lists, *bounds]


def judged_chunks(table: pa.Table, source: Source) -> tuple[list[dict[str, Any]], pa.Table]:
    """The chunks that contradict themselves, each with its fault; and the chunks whose rows can be read at all.

    A chunk whose lists differ in length is not among the latter.
    """
    arrays = ["delta_ids", *(f"t_{t}" for t in source.timelines), *(f"c_{column}" for column in source.columns)]
    judged = judge_chunks(table, timelines=list(source.timelines), arrays=arrays, place_bits=PLACE_BITS)
    flags = {name: np.asarray(judged[name]).astype(np.bool_) for name in _FAULTS}
    # a merged chunk has rows of many drops; its `seq_no` is the drop of the last row
    _, greatest, any_row = Lists.of(table["row_ids"]).bounds()
    flags[_FOREIGN] = any_row & (greatest >> PLACE_BITS != numbers(table["seq_no"]))
    faults = [
        {"table": chunks(source).qualified, "fault": _FAULTS[name], **row}
        for name, wrong in flags.items()
        for row in table.filter(pa.array(wrong)).select(["chunk_id", "entity", "seq_no"]).to_pylist()
    ]
    return faults, table.filter(pa.array(~flags[_UNEVEN]))
