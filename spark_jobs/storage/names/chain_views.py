"""The views of chains that users read: `gold.checkpoints`, `gold.chains`, `gold.refused` and `gold.compactions`, of all
sources that keep chains."""

from __future__ import annotations

from collections.abc import Iterator

from spark_jobs.storage.descriptions.chain_tables import CHAINS, COMPACTION, SEGMENT
from spark_jobs.storage.descriptions.schema import Column
from spark_jobs.storage.descriptions.sql import literal, qualified
from spark_jobs.storage.names.views import VISIBLE, create_view, publication, rows_in_force

REFUSALS = (
    "create_on_live", "deleted", "dimension_mismatch", "index_out_of_bounds", "unequal_lists", "non_finite",
    "null_operand", "missing_parent", "missing_base", "unknown_operation", "unknown_transform", "unreadable_list",
    "int64_overflow",
)  # fmt: skip
"""Reasons of refusals, in the order of the numbers that are stored, from 1 on; a test compares them with the
kernel's."""

UNTIL = "if(size(h.known_until) = 0, array_repeat(CAST(NULL AS BIGINT), size(h.event_times)), h.known_until)"
"""SQL over `h`: the time until which each delta of a segment is known. Where the stored list is empty, it is null for
each delta."""


def _of_each(column: str) -> str:
    """SQL: a list with an element for each delta. A stored list of one element is repeated for all deltas."""
    return f"if(size(h.{column}) = 1, array_repeat(h.{column}[0], size(h.event_times)), h.{column})"


_OPS = f"{_of_each('ops')} AS ops"
_KNOWN = f"if(size(h.known) = 0, h.event_times, {_of_each('known')}) AS known"

OPERATIONS = ("create", "dense", "sparse", "scale", "offset", "add", "transform", "delete", "upsert")
"""Operations, in the order of the numbers that are stored, from 0 on."""


_STORED = {column.name: column for column in CHAINS.columns}
_CHECKPOINT = (
    *(_STORED[name] for name in ("source", "entity")),
    Column("timestamp", "TIMESTAMP", "Event time of the last delta folded into the checkpoint; null: none was."),
    *(_STORED[name] for name in ("at_delta", "delta_count", "deleted", "names", "ints", "floats", "seen")),
)
_REVISION = tuple(_STORED[name] for name in ("revision", "known_from"))
_SUMS = {"chains": "chains", "checkpoints": "checkpoints", "merged": "deltas_merged", "dropped": "deltas_dropped"} | {
    name: name for name in ("bytes_before", "bytes_after")
}
"""Sums of `gold.compactions` by the columns that they add up."""


def chain_views() -> Iterator[str]:
    """The statements that define the views of chains."""
    yield create_view(
        "gold",
        "checkpoints",
        "Every checkpoint of every entity: its state at the delta at_delta. A read folds onto it the deltas up to "
        "end_time, the place of the next checkpoint (null: there is none).",
        [
            *_CHECKPOINT,
            Column("end_time", "TIMESTAMP", "Place of the entity's next checkpoint; null: there is none."),
            Column(
                "settled", "TIMESTAMP", "It is valid as known from this visible time on; null: as known at any time."
            ),
            Column("deltas", "BIGINT", "Deltas between it and the next one."),
            *_REVISION,
        ],
        _live_segments(
            "h.source, h.entity, timestamp_micros(h.timestamp) AS timestamp, h.at_delta, h.delta_count, h.deleted,"
            " h.names, h.ints, h.floats, h.seen, timestamp_micros(h.end_time) AS end_time,"
            " timestamp_micros(h.settled) AS settled, h.deltas, h.revision, h.known_from",
            "at_delta IS NOT NULL",
        ),
    )
    yield _chains_view()
    yield from _about_views()


def _chains_view() -> str:
    return create_view(
        "gold",
        "chains",
        "The chain of every entity: its newest checkpoint and the deltas pending after it.",
        [
            *_CHECKPOINT,
            Column("pending", "BIGINT", "Deltas after the checkpoint."),
            Column("first_pending", "TIMESTAMP", "Event time of the first of them."),
            Column("event_times", "ARRAY<TIMESTAMP>", "Event time of each pending delta."),
            Column("row_ids", "ARRAY<BIGINT>", "row_id of each pending delta."),
            Column("ops", "ARRAY<STRING>", "Operation of each pending delta."),
            *(_STORED[name] for name in ("encoding", "saved_bytes")),
            *_REVISION,
        ],
        _chains(),
    )


def _about_views() -> Iterator[str]:
    """The statements that define `gold.refused`, the deltas that chains skip, and `gold.compactions`."""
    yield create_view(
        "gold",
        "refused",
        "Deltas that their chain skips, with the reason; worked out again whenever the chain changes.",
        [
            *(_STORED[name] for name in ("source", "entity")),
            Column("event_time", "TIMESTAMP", "Event time of the delta."),
            Column("row_id", "BIGINT", "The row that is the delta."),
            Column("op", "STRING", "Its operation."),
            Column("reason", "STRING", "Why the chain skips it."),
            Column("time", "TIMESTAMP", "Visible time from which the delta is known."),
            _STORED["known_from"],
        ],
        _refused_deltas(),
    )
    yield create_view(
        "gold",
        "compactions",
        "Counts of every run's compaction: chains and checkpoints that it wrote, deltas that it merged into newest "
        "checkpoints and that retention let it drop, bytes of what it replaced and wrote, before files are compressed.",
        [
            _STORED["source"],
            Column("known_from", "TIMESTAMP", "Visible time of the run's publication."),
            *(Column(alias, "BIGINT", _STORED[column].comment) for column, alias in _SUMS.items()),
        ],
        _compactions(),
    )


def _chains() -> str:
    rows = _live_segments(
        "h.source, h.entity, timestamp_micros(h.timestamp) AS timestamp, h.at_delta, h.delta_count, h.deleted,"
        " h.names, h.ints, h.floats, h.seen, h.deltas AS pending,"
        f" h.event_times, h.row_ids, {_OPS}, {UNTIL} AS until, h.encoding, h.saved_bytes, h.revision, h.known_from",
        "end_time IS NULL",
    )
    zipped = "arrays_zip(event_times, row_ids, ops, until)"
    rows = f"SELECT *, filter({zipped}, d -> d.until IS NULL) AS standing FROM ({rows})"
    return (
        "SELECT source, entity, timestamp, at_delta, delta_count, deleted, names, ints, floats, seen, pending,"
        " timestamp_micros(get(standing, 0).event_times) AS first_pending,"
        " transform(standing, d -> timestamp_micros(d.event_times)) AS event_times,"
        " transform(standing, d -> d.row_ids) AS row_ids,"
        f" transform(standing, d -> get({_array(OPERATIONS)}, CAST(d.ops AS INT))) AS ops,"
        f" encoding, saved_bytes, revision, known_from FROM ({rows})"
    )


def _refused_deltas() -> str:
    zipped = _live_segments(
        f"h.source, h.entity, h.known_from, h.event_times, h.row_ids, {_OPS}, h.refusals, {_KNOWN}, {UNTIL} AS until",
        "refusals IS NOT NULL",
    )
    return (
        "SELECT source, entity, timestamp_micros(event_times) AS event_time, row_ids AS row_id,"
        f" get({_array(OPERATIONS)}, CAST(ops AS INT)) AS op, get({_array(REFUSALS)}, refusals - 1) AS reason,"
        " timestamp_micros(known) AS time, known_from FROM"
        " (SELECT source, entity, known_from, inline(arrays_zip(event_times, row_ids, ops, refusals, known, until))"
        f" FROM ({zipped})) WHERE refusals > 0 AND until IS NULL"
    )


def _compactions() -> str:
    return (
        f"SELECT h.source, h.known_from, {', '.join(f'sum(h.{column}) AS {alias}' for column, alias in _SUMS.items())}"
        f" FROM {publication()} p JOIN {qualified(CHAINS.database, CHAINS.table)} h ON h.source = p.source"
        f" AND h.era = {literal(COMPACTION)} AND h.known_from < p.published AND {VISIBLE}"
        " GROUP BY h.source, h.known_from"
    )


def _live_segments(columns: str, condition: str) -> str:
    rows = rows_in_force(CHAINS, list(SEGMENT), source=None, columns="h.*")
    return f"SELECT {columns} FROM ({rows}) h WHERE h.{condition}"


def _array(names: tuple[str, ...]) -> str:
    return f"array({', '.join(map(literal, names))})"
