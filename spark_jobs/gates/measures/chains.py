"""Measures of chains for gold's gate: what the attempt's segments hold, where each chain ends, what they refuse."""

from __future__ import annotations

from spark_jobs.gates.measures.query import Part, timestamp, violation
from spark_jobs.gates.measures.touching import due_updates, of_changed_entities
from spark_jobs.restatement.touched import Scope
from spark_jobs.storage.chain_tables import CHAINS, SEGMENT
from spark_jobs.storage.chain_views import UNTIL
from spark_jobs.storage.publication import visible_sql
from spark_jobs.storage.sql import literal, qualified

REFUSING = "segments_with_refused_deltas"
"""Measure: segments, come and gone, in which the chain skips a delta or skipped one."""


def gain(scope: Scope, value: str) -> str:
    """What a row of this attempt adds to a sum over all that is published; a change of definition writes all anew."""
    return f"IF(era = 'live', 1, {0 if scope.everything else -1}) * {value}"


def chains(scope: Scope, token: int) -> Part:
    """One row per changed entity: the deltas that its chain gained, what retention let go of, and its open ends.

    Only segments that end a chain are read beside the attempt's own, as statistics on `end_time` let others be skipped.
    """
    own, live, ends = f"token = {token}", "era = 'live'", "end_time IS NULL"
    known_from = timestamp(scope.known_from_us)
    right_time = (
        f"IF({live}, known_from = {known_from} AND known_to IS NULL, known_to = {known_from} AND known_from < known_to)"
    )
    columns = {
        "opened": f"coalesce(collect_list(IF({live} AND {ends}, struct(start_row, known_from), NULL)), array())",
        "closed": f"coalesce(collect_list(IF(NOT {live} AND {ends}, struct(start_row, known_from), NULL)), array())",
        "gained": f"sum(IF({own}, {gain(scope, 'deltas')} + dropped, 0))",
        "wrong_time": f"count_if({own} AND NOT coalesce({right_time}, false))",
        "with_refused": f"count_if({own} AND size(refusals) > 0)",
    }
    relation = (
        f"SELECT entity, {', '.join(f'{told} AS {column}' for column, told in columns.items())}"
        f" FROM {qualified(CHAINS.database, CHAINS.table)} WHERE source = {literal(scope.source.name)}"
        f" AND era IN ('live', 'closing') AND ({own} OR {ends}) AND {visible_sql(scope.publication, token)}"
        f"{of_changed_entities(scope, CHAINS, token)} GROUP BY entity HAVING bool_or({own})"
    )
    adds = {
        "deltas_folded": "gained",
        "chains_without_end": violation("size(array_except(opened, closed)) <> 1"),
        "segments_at_wrong_time": "wrong_time",
        REFUSING: "with_refused",
    }
    return Part(relation, adds, ("entity", *columns))


def refused_updates(scope: Scope, token: int) -> str:
    """The updates behind the deltas that the attempt's segments skip (`sign` 1), and behind those that the segments in
    whose place they stand skipped (-1): what the former would have added is in no state, and what the latter would
    have was in none.
    """
    written = f"h.source = {literal(scope.source.name)} AND h.token = {token} AND size(h.refusals) > 0"
    table = qualified(CHAINS.database, CHAINS.table)
    skipped = [f"SELECT 1 AS sign, h.* FROM {table} h WHERE {written} AND h.era = 'live'"]
    if not scope.everything:
        same = " AND ".join(f"c.{column} <=> h.{column}" for column in (*SEGMENT, "known_from"))
        skipped.append(
            f"SELECT -1 AS sign, h.* FROM {table} h LEFT SEMI JOIN"
            f" (SELECT * FROM {table} h WHERE {written} AND h.era = 'closing') c ON {same}"
            f" WHERE h.era = 'live' AND {visible_sql(scope.publication, of='h')}"
        )
    held = f"SELECT h.*, {UNTIL} AS until FROM ({' UNION ALL '.join(skipped)}) h"
    listed = f"SELECT sign, entity, inline(arrays_zip(row_ids, refusals, until)) FROM ({held})"
    refused = f"SELECT sign, entity, row_ids AS row_id FROM ({listed}) WHERE refusals > 0 AND until IS NULL"
    return (
        f"SELECT r.sign, u.* FROM ({refused}) r JOIN ({due_updates(scope)}) u ON u.entity = r.entity"
        " AND u.row_id = r.row_id WHERE r.sign = 1 OR NOT u.touches"
    )


def entities_past_balance(scope: Scope, token: int) -> str:
    """Entities of which retention lets deltas go while their chain skips some: which of these went is not told."""
    return (
        f"SELECT entity FROM {qualified(CHAINS.database, CHAINS.table)} WHERE source = {literal(scope.source.name)}"
        f" AND token = {token} GROUP BY entity HAVING sum(dropped) > 0 AND bool_or(size(refusals) > 0)"
    )
