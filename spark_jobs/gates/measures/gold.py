"""The measures of the gate after `compact`: the states that this run changes, as they would be published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.measures import (
    BALANCE,
    OVERFLOWN,
    OVERFLOWN_BEFORE,
    REFUSING,
    Adds,
    both,
    diffs,
    ends_of_chains,
    faulty_things,
    gained_by_rows,
    gained_by_states,
    judge_ends,
    judge_off_their_row,
    judge_segments,
    judge_states,
    judge_versions,
    off_their_row,
    overflown,
    past_balance,
    refused_deltas,
    weigh_updates,
)
from spark_jobs.engine.restatement import LIVE
from spark_jobs.gates.measures.parts import AnyPart, EachRow, Ground, Measurement, OfShare, Together, measure
from spark_jobs.gates.measures.silver import SHOWABLE
from spark_jobs.restatement.touched import Scope, instant
from spark_jobs.sources import State
from spark_jobs.storage.coordination.publication import visible_rows
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import STATE
from spark_jobs.storage.lakes.lake import Lake

_MEASURES = (
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
    OVERFLOWN,
    OVERFLOWN_BEFORE,
)
_UNBALANCING = (REFUSING, OVERFLOWN, OVERFLOWN_BEFORE)
"""The measures of causes for which states contain less than the sum of the rows. If one of them is not 0, the balance
leaves out some states or rows."""
_ROWS_SHOWN = ("row_id", "entity", "event_time", "time", "diff")


def gold(lake: Lake, scope: Scope, *, token: int) -> Measurement:
    """The measures of the states that the attempt `token` would publish, compared with the publication of `scope`.

    `components_out_of_balance` counts the additive components (int64) whose gain over all entities differs from the sum
    over the rows that came and went. The measure `balance_of_<component>` is the difference of each.

    Some rows are left out of the sum. A delta that a chain refuses is in no state; so where this run changes a segment
    with refused deltas, exactly their rows are left out. An entity is left out altogether if retention removes deltas
    of it at the same time. So is an entity with a sum that is or was null, since it does not fit 64 bits.
    """
    state = scope.source.state
    parts = [] if state is None else _Gold(lake, scope, state, token).parts()
    measured = measure(lake.spark, parts, dict.fromkeys(_MEASURES, 0), Ground("entity", "entity"))
    if state is not None and additive(state) and any(measured.values[m] for m in _UNBALANCING):
        balance = _Gold(lake, scope, state, token).balance_other_entities()
        measured.values.update(measure(lake.spark, balance, dict.fromkeys(balance_measures(state), 0)).values)
    off = [m for m, value in measured.values.items() if m.startswith(BALANCE) and value]
    measured.values["components_out_of_balance"] = len(off)
    return measured


def additive(state: State) -> dict[str, str | int]:
    """The components whose sums must balance exactly: name -> the column of updates that is added, or the constant.

    Sums of floating point values need not balance, so they are not among them."""
    if state.mode != "add" or state.datatype != "int64" or state.delete_when is not None:
        return {}
    return {name: f"c_{added}" if isinstance(added, str) else int(added) for name, added in state.components.items()}


def balance_measures(state: State) -> list[str]:
    """The names of the balance measures, one for each additive component."""
    return [f"{BALANCE}{component}" for component in additive(state)]


@dataclass(frozen=True)
class _Gold:
    """The parts that measure the states and chains that the attempt `token` wrote, and the rows behind them."""

    lake: Lake
    scope: Scope
    state: State
    token: int

    def parts(self) -> list[AnyPart]:
        parts: list[AnyPart] = [self._own_states(), self._rows(), self._versions()]
        if self.scope.source.keeps_chains:
            parts += [self._own_segments(), self._ends()]
        return [*parts, self._last_rows()] if self.state.mode == "diff" else parts

    def _history(self, table: Table, columns: Sequence[str], where: pc.Expression) -> StoredRows:
        return self.lake.stored(table, columns, where, {"source": [self.scope.source.name], **SHOWABLE})

    @property
    def _of_attempt(self) -> pc.Expression:
        return pc.field("token") == self.token

    @property
    def _vector(self) -> str:
        return "ints" if self.state.datatype == "int64" else "floats"

    @property
    def _sums_may_overflow(self) -> bool:
        return self.state.mode == "add" and not self.scope.source.keeps_chains

    @property
    def _values(self) -> list[str]:
        """The columns of updates that additive components add up."""
        return [column for column in additive(self.state).values() if isinstance(column, str)]

    def _own_states(self) -> EachRow:
        """The part that checks each state that the attempt wrote, and adds the states to the sums over all entities."""
        vector = self._vector
        shows = ("entity", "timestamp", "delta_count", vector, "seen", "known_from", "known_to", "revision", "era")
        rows = self._history(STATE, [*shows, *(("names",) if self.state.components else ())], self._of_attempt)
        judge = partial(
            judge_states,
            vector=vector,
            named=bool(self.state.components),
            width=self.state.width,
            reached_us=self.scope.frontiers.reached_us,
            known_from_us=self.scope.known_from_us,
            sums=self._sums_may_overflow,
        )
        return EachRow(rows, partial(both, one=judge, other=self._gained_by_states), shows)

    @property
    def _gained_by_states(self) -> partial[Adds]:
        components = list(additive(self.state))
        deltas = not self.scope.source.keeps_chains
        return partial(gained_by_states, everything=self.scope.everything, components=components, deltas=deltas)

    def _rows(self) -> EachRow:
        """The part that adds up the rows that came and went, as the fold must have added them."""
        rows = self.scope.touching_rows(self.lake, ["diff", *self._values])
        sums = partial(gained_by_rows, components=additive(self.state))
        return EachRow(rows, partial(both, one=partial(diffs, measure="deltas_accepted"), other=sums), _ROWS_SHOWN)

    def _versions(self) -> Together:
        """The part that checks the versions of the states that the attempt changed."""
        visible = visible_rows(self.scope.publication, self.token)
        rows = self._history(STATE, ["entity", "era", "known_from", "revision", "token"], visible)
        gather = partial(faulty_things, identity=("entity",), token=self.token)
        return Together([OfShare(rows, "entity")], gather, partial(judge_versions, repeated="repeated_entities"))

    def _own_segments(self) -> EachRow:
        """The part that checks each segment that the attempt wrote, and adds up the deltas that chains gained."""
        shows = ("entity", "start_time", "start_row", "end_time", "deltas", "dropped", "known_from", "known_to", "era")
        rows = self._history(CHAINS, [*shows, "refusals"], self._of_attempt)
        known_from = self.scope.known_from_us
        judge = partial(judge_segments, everything=self.scope.everything, known_from_us=known_from)
        return EachRow(rows, judge, shows)

    def _ends(self) -> Together:
        """The part that checks the ends of the chains in which the attempt wrote a segment.

        Of earlier segments, only those that end a chain are read: statistics on `end_time` let others be skipped."""
        ends = visible_rows(self.scope.publication, self.token) & (self._of_attempt | pc.field("end_time").is_null())
        rows = self._history(CHAINS, ["entity", "era", "start_row", "end_time", "known_from", "token"], ends)
        return Together([OfShare(rows, "entity")], partial(ends_of_chains, token=self.token), judge_ends)

    def _last_rows(self) -> Together:
        """The part that compares each state whose last delta is one of this run's rows with the values of that row."""
        values = [f"c_{column}" for column in self.state.components.values()]
        states = self._history(
            STATE, ["entity", "at_delta", self._vector], self._of_attempt & (pc.field("era") == LIVE)
        )
        came = pc.field("diff") > 0
        rows = self.scope.due_rows(
            self.lake, ["row_id", *values], came if self.scope.everything else came & self.scope.freshness()
        )
        single = self.state.datatype == "float32"
        gather = partial(off_their_row, vector=self._vector, row_columns=values, single=single)
        return Together([OfShare(states, "at_delta"), OfShare(rows, "row_id")], gather, judge_off_their_row)

    def balance_other_entities(self) -> list[AnyPart]:
        """The parts that balance additive components if the attempt's states contain less than the rows add.

        They need a pass of their own, since they look for rows of the past. Few runs need it."""
        left_out = self._left_out()
        is_other = ~pc.field("entity").isin(left_out)
        states = self._history(STATE, ["era", "ints"], self._of_attempt & is_other)
        of_states = partial(self._gained_by_states, deltas=False)
        columns = ["entity", "row_id", "diff", *self._values]
        came = self.scope.due_rows(
            self.lake, columns, is_other if self.scope.everything else is_other & self.scope.freshness()
        )
        of_rows = partial(gained_by_rows, components=additive(self.state))
        parts: list[AnyPart] = [EachRow(states, of_states, ("entity",)), EachRow(came, of_rows, _ROWS_SHOWN)]
        if not self.scope.source.keeps_chains:
            return parts
        refused = self._refused_deltas()
        behind = pc.field("row_id").isin(refused["row_id"].combine_chunks()) & is_other
        updates = self.scope.due_rows(
            self.lake, ["entity", "row_id", "diff", "time", "event_time", *self._values], behind
        )
        fresh = [table.append_column("touches", self._touches(table)) for table in updates.tables()]
        if fresh:
            skipped = weigh_updates(pa.concat_tables(fresh), refused)
            parts.append(
                EachRow(skipped, partial(gained_by_rows, components=additive(self.state), sign=1), _ROWS_SHOWN)
            )
        return parts

    def _left_out(self) -> pa.Array:
        """The entities whose states cannot be compared with rows, see `gold`."""
        if self.scope.source.keeps_chains:
            return past_balance(self._history(CHAINS, ["entity", "dropped", "refusals"], self._of_attempt).whole())
        states = self._history(STATE, ["entity", self._vector], self._of_attempt).whole()
        return states["entity"].combine_chunks().filter(pa.array(overflown(states[self._vector])))

    def _refused_deltas(self) -> pa.Table:
        """The deltas that chains refuse, in segments that the attempt wrote or closed; see `refused_deltas`."""
        columns = [
            "entity",
            "era",
            "start_time",
            "start_row",
            "known_from",
            "token",
            "row_ids",
            "refusals",
            "known_until",
        ]
        visible = self._of_attempt if self.scope.everything else visible_rows(self.scope.publication, self.token)
        segments = self._history(CHAINS, columns, visible)
        return refused_deltas(segments.whole(), token=self.token)

    def _touches(self, updates: pa.Table) -> pa.Array:
        if self.scope.everything:
            return pa.array([True] * updates.num_rows, pa.bool_())
        published = self.scope.publication
        fresh = pc.greater_equal(updates["time"], instant(published.published_us))
        return pc.or_(fresh, pc.greater_equal(updates["event_time"], instant(published.reached_us))).combine_chunks()
