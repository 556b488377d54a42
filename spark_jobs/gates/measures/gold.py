"""Measures of the gate after `compact`: states as they would be published, where this run changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gates.measures.chains import REFUSING, chains, entities_past_balance, gain, refused_updates
from spark_jobs.gates.measures.query import Measurement, Part, measure, timestamp, violation
from spark_jobs.gates.measures.touching import of_changed_entities, touching
from spark_jobs.gates.measures.versions import Versions, measure_with_versions
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import State
from spark_jobs.storage.publication import visible_sql
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.tables import STATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BALANCE = "balance_of_"
"""Prefix of the measure of one additive component: what states gained less what the rows add."""


def gold(spark: SparkSession, scope: Scope, *, token: int) -> Measurement:
    """What the attempt `token` would publish as state, against the publication that `scope` starts from.

    `components_out_of_balance` counts the additive components (int64) whose gain over all entities is not the sum over
    the rows that came and went; each one's difference is in the measure `balance_of_<component>`. What a chain refuses
    is in no state, so where this run changes a segment that holds such a delta, exactly those rows are left out of the
    sum; an entity of which retention lets deltas go at the same time is left out altogether.
    """
    state = scope.source.state
    parts = [] if state is None else _parts(scope, state, token)
    versions = [] if state is None else [_versions(scope, token)]
    names = (
        "repeated_entities",
        "closings_of_nothing",
        "states_of_wrong_width",
        "states_without_deltas",
        "states_beyond_reached",
        "changed_without_revision",
        "changes_at_wrong_time",
        "states_off_their_row",
        "deltas_accepted",
        "deltas_folded",
        "chains_without_end",
        "segments_at_wrong_time",
        REFUSING,
    )
    measured = measure_with_versions(spark, parts, versions, dict.fromkeys(names, 0))
    if state is not None and measured.values[REFUSING] and _additive(state):
        measured.values.update(measure(spark, _balance_beside_refused(scope, state, token)).values)
    off = [m for m, value in measured.values.items() if m.startswith(BALANCE) and value]
    measured.values["components_out_of_balance"] = len(off)
    return measured


def _balance_beside_refused(scope: Scope, state: State, token: int) -> list[Part]:
    """The parts that balance additive components, where chains of the attempt skip deltas. A query of its own, as it
    looks for rows of the past: few runs need it."""
    past = entities_past_balance(scope, token)
    balanced = []
    for part in (_states(scope, state, token), _rows(scope, state)):
        adds = {m: value for m, value in part.adds.items() if m.startswith(BALANCE)}
        relation = f"SELECT * FROM ({part.relation}) LEFT ANTI JOIN ({past}) USING (entity)"
        balanced.append(Part(relation, adds, part.shows, wide=frozenset(adds)))
    refused = f"SELECT * FROM ({refused_updates(scope, token)}) LEFT ANTI JOIN ({past}) USING (entity)"
    skipped = {f"{BALANCE}{component}": f"sign * diff * {each}" for component, each in _of_rows(state).items()}
    shows = ("sign", "row_id", "entity", "event_time", "time", "diff")
    return [*balanced, Part(refused, skipped, shows, wide=frozenset(skipped))]


def _parts(scope: Scope, state: State, token: int) -> list[Part]:
    parts = [_states(scope, state, token), _rows(scope, state)]
    if scope.source.keeps_chains:
        parts.append(chains(scope, token))
    return [*parts, _last_rows(scope, state, token)] if state.mode == "diff" else parts


def _states(scope: Scope, state: State, token: int) -> Part:
    """What is wrong with the rows of this attempt, each by itself, and what they add to the sums over all entities."""
    vector = "ints" if state.datatype == "int64" else "floats"
    live, known_from = "era = 'live'", timestamp(scope.known_from_us)
    right_time = (
        f"IF({live}, known_from = {known_from} AND known_to IS NULL, known_to = {known_from} AND known_from < known_to)"
    )
    arrays = ("names", vector, "seen") if state.components else (vector, "seen")
    # a vector without declared length is as long as its flags
    width = "size(seen)" if state.width is None else str(state.width)
    shape = " AND ".join(f"size({array}) = {width}" for array in arrays)
    adds = {
        "states_of_wrong_width": violation(f"{live} AND NOT coalesce({shape}, false)"),
        "states_without_deltas": violation(f"{live} AND coalesce(delta_count, 0) < 1"),
        "states_beyond_reached": violation(f"{live} AND timestamp >= {timestamp(scope.frontiers.reached_us)}"),
        "changes_at_wrong_time": violation(f"NOT coalesce({right_time}, false)"),
    }
    if not scope.source.keeps_chains:
        adds["deltas_folded"] = gain(scope, "delta_count")
    balances = {
        f"{BALANCE}{component}": gain(scope, f"CAST(coalesce(get(ints, {i}), 0) AS DECIMAL(38, 0))")
        for i, component in enumerate(_additive(state))
    }
    shows = ("entity", "timestamp", "delta_count", vector, "seen", "known_from", "known_to", "revision", "era")
    return Part(f"{_visible(scope)} AND token = {token}", adds | balances, shows, wide=frozenset(balances))


def _versions(scope: Scope, token: int) -> Versions:
    """The states of the entities that the attempt changed."""
    table = f"{_visible(scope)} AND {visible_sql(scope.publication, token)}{of_changed_entities(scope, STATE, token)}"
    rows = f"SELECT entity, era = 'live' AS is_live, known_from, revision, token = {token} AS own FROM ({table})"
    return Versions(rows, ("entity",), "repeated_entities")


def _visible(scope: Scope) -> str:
    """The source's rows that a publication can show, as SQL that goes on with AND."""
    history = qualified(STATE.database, STATE.table)
    return f"SELECT * FROM {history} WHERE source = {literal(scope.source.name)} AND era IN ('live', 'closing')"


def _rows(scope: Scope, state: State) -> Part:
    """What the rows that came and went add, as the fold must have added it."""
    adds = {f"{BALANCE}{component}": f"-diff * {each}" for component, each in _of_rows(state).items()}
    shows = ("row_id", "entity", "event_time", "time", "diff")
    return Part(touching(scope), {"deltas_accepted": "diff", **adds}, shows, wide=frozenset(adds))


def _of_rows(state: State) -> dict[str, str]:
    """SQL of what an update adds to each additive component."""
    return {
        component: f"CAST(coalesce({name(f'c_{value}')}, 0) AS DECIMAL(38, 0))"
        if isinstance(value, str)
        else str(value)
        for component, value in _additive(state).items()
    }


def _last_rows(scope: Scope, state: State, token: int) -> Part:
    """Each state whose last delta is one of this run's rows, beside that row: it must say what the row says."""
    vector, type_ = ("ints", "BIGINT") if state.datatype == "int64" else ("floats", "DOUBLE")
    # a value of float32 is what the row's value rounds to
    typed = "CAST(CAST({} AS FLOAT) AS DOUBLE)" if state.datatype == "float32" else f"CAST({{}} AS {type_})"
    told = ", ".join(typed.format(name(f"c_{column}")) for column in state.components.values())
    relation = (
        f"SELECT s.entity, s.at_delta, s.{vector} AS state, array({told}) AS told"
        f" FROM {qualified(STATE.database, STATE.table)} s JOIN ({touching(scope)}) r"
        f" ON r.row_id = s.at_delta AND r.diff > 0"
        f" WHERE s.source = {literal(scope.source.name)} AND s.era = 'live' AND s.token = {token}"
    )
    return Part(
        relation, {"states_off_their_row": violation("NOT (state <=> told)")}, ("entity", "at_delta", "state", "told")
    )


def _additive(state: State) -> dict[str, str | int | float]:
    """Components whose sums must balance to the last digit: sums of floating point values need not."""
    adds_up = state.mode == "add" and state.datatype == "int64" and state.delete_when is None
    return dict(state.components) if adds_up else {}
