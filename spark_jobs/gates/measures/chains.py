"""Measures of chains for gold's gate: what the attempt's segments hold, where each chain ends."""

from __future__ import annotations

from spark_jobs.gates.measures.query import Part, timestamp, violation
from spark_jobs.restatement.touched import Scope
from spark_jobs.storage.chain_tables import CHAINS
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
        f" GROUP BY entity HAVING bool_or({own})"
    )
    adds = {
        "deltas_folded": "gained",
        "chains_without_end": violation("size(array_except(opened, closed)) <> 1"),
        "segments_at_wrong_time": "wrong_time",
        REFUSING: "with_refused",
    }
    return Part(relation, adds, ("entity", *columns))
