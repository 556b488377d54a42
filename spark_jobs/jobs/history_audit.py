"""The audit's look at histories: whether one version of a window or a state follows the other, each known from a
publication on; and whether every late row is listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.kernels.comparison import CLOSING, LIVE
from spark_jobs.kernels.measures.histories import FAULTS, judge_history
from spark_jobs.kernels.plain import Ints, numbers
from spark_jobs.reads.publications import publications
from spark_jobs.restatement.windows import Corrections
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication, visible_rows
from spark_jobs.storage.schema import Table
from spark_jobs.storage.tables import LATE, STATE
from spark_jobs.storage.times import micros

_ERAS = (LIVE, CLOSING, "closed")
_NOT_LATE = ("below_horizon", "kept_below_horizon")


def broken_histories(
    lake: Lake, source: Source, definitions: Sequence[Definition], now: Publication
) -> list[dict[str, Any]]:
    """The rows of history tables that contradict others, each with its table and what is wrong with it."""
    known = publications(lake, source, now)
    times = np.unique(np.array([micros(publication.known_from) for publication in known], np.int64))
    found = []
    for definition in definitions:
        whole = definition.window.keep_us is None
        found += _broken(lake, definition.table(), definition.identity, {}, times, now, whole=whole)
    if source.state is not None:
        of_source = {"source": [source.name]}
        found += _broken(lake, STATE, ["entity"], of_source, times, now, whole=True)
    return found


def _broken(
    lake: Lake,
    table: Table,
    identity: Sequence[str],
    partitions: Mapping[str, Sequence[str]],
    times: Ints,
    now: Publication,
    *,
    whole: bool,
) -> list[dict[str, Any]]:
    read = [*identity, "era", "known_from", "known_to", "revision", "token"]
    rows = lake.stored(table, read, visible_rows(now), {**partitions, "era": list(_ERAS)}).whole()
    faults = judge_history(rows, identity, times, whole=whole)
    wrong = rows.filter(pa.array(faults > 0)).to_pylist()
    return [
        {"table": table.qualified, "fault": FAULTS[fault - 1], **row}
        for fault, row in zip(faults[faults > 0].tolist(), wrong, strict=True)
    ]


def unlisted_late_rows(
    lake: Lake, source: Source, now: Publication, anew: Mapping[str, Corrections]
) -> list[dict[str, Any]]:
    """The definitions of which `silver.late` lists more or fewer rows than are late; `anew` is what their windows give
    when they are all computed anew."""
    if source.retention.horizon_us is not None:
        return []  # of rows below it nothing can be told any more
    rows = lake.stored(LATE, ["definition", "action", "diff"], visible_rows(now), {"source": [source.name]}).whole()
    rows = rows.filter(pc.invert(pc.is_in(rows["action"], value_set=pa.array(_NOT_LATE))))
    differs = []
    for name, corrected in anew.items():
        listed = int(numbers(rows.filter(pc.equal(rows["definition"], name))["diff"]).sum())
        if listed != corrected.account.late:
            differs.append(
                {"table": LATE.qualified, "definition": name, "late": corrected.account.late, "listed": listed}
            )
    return differs
