"""The part of the audit that checks histories and late rows.

The versions of a window or a state must follow each other, each known from a publication on. `silver.late` must list
the late rows and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.columns import Ints
from spark_jobs.engine.measures import FAULTS, judge_history
from spark_jobs.engine.restatement import CLOSING, LIVE
from spark_jobs.reads.publications import publications
from spark_jobs.restatement.late import LISTED, judged_rows, other_late_files
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication, visible_rows
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import LATE, STATE
from spark_jobs.storage.descriptions.times import micros, utc_rows
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.overlay import OverlayLake

_ERAS = (LIVE, CLOSING, "closed")

MOST_DIFFERENCES = 1000
"""The most differing rows that the audit keeps of a table."""


def broken_histories(
    lake: Lake, source: Source, definitions: Sequence[Definition], now: Publication
) -> list[dict[str, Any]]:
    """The rows of history tables that contradict other rows, each with its table and its fault."""
    all_publications = publications(lake, source, now)
    times = np.unique(np.array([micros(publication.known_from) for publication in all_publications], np.int64))
    faults = []
    for definition in definitions:
        whole = definition.window.keep_us is None
        faults += _broken_rows(lake, definition.table(), definition.identity, {}, times, now, whole=whole)
    if source.state is not None:
        of_source = {"source": [source.name]}
        faults += _broken_rows(lake, STATE, ["entity"], of_source, times, now, whole=True)
    return faults


def _broken_rows(
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


def unlisted_late_rows(overlay: OverlayLake, scope: Scope, definitions: list[Definition]) -> list[dict[str, Any]]:
    """The rows that `silver.late` lacks, or should not list, by judging all rows anew; at most `MOST_DIFFERENCES`.

    `diff` is how often the table lacks a row, below zero for a row that it should not list. Empty for a source with a
    horizon.
    """
    if scope.has_horizon:
        return []  # rows below the horizon can't be judged any more
    taken_back = other_late_files(overlay, scope, definitions, 0) or []
    overlay.append_files(LATE, [*taken_back, *judged_rows(overlay, scope, definitions, 0).files])
    if not overlay.wrote(LATE):
        return []
    differ = overlay.written_rows(LATE).groupBy(*LISTED).agg(F.sum("diff").alias("diff")).where("diff <> 0")
    return [{"table": LATE.qualified, **row} for row in utc_rows(differ.limit(MOST_DIFFERENCES))]
