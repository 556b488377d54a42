"""An erasure in histories: of windows, states, chains and late rows.

Windows and states of chosen rows alone are removed; those that other rows share are restated without the chosen ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import definitions
from spark_jobs.engine.columns import Flags, among
from spark_jobs.erasure.account import ErasureAccount
from spark_jobs.landing.choices import Choice
from spark_jobs.reads.publications import publications
from spark_jobs.restatement.chains import retention_of
from spark_jobs.restatement.late import BELOW, KEPT_BELOW, late_rows
from spark_jobs.restatement.replayed import Moment, Region, replay, taken_in, versions_of
from spark_jobs.restatement.replayed_states import ReplayedStates, columns_replayed, replayed_states
from spark_jobs.restatement.restater import result_schema
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication, visible_rows
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import BELOW_HORIZON, LATE, STATE, row_columns, updates
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.source_plane import stored_counting_rows


@dataclass(frozen=True)
class Replacement:
    """Rows of a table that go, and the rows `more` that come in their place (None: no rows).

    `going`: a function that flags the rows that go, by the columns `looked_at`. `source`: the source whose rows alone
    are looked at in a shared table.
    """

    table: Table
    looked_at: Sequence[str]
    going: Callable[[pa.Table], Flags]
    more: pa.Table | None
    source: str | None = None

    @property
    def came(self) -> int:
        """The number of rows that come."""
        return 0 if self.more is None else self.more.num_rows

    def count(self, lake: Lake) -> dict[str, int]:
        """The numbers of rows that would have gone (`went`) and come (`came`)."""
        partitions = None if self.source is None else {"source": [self.source]}
        stored = lake.stored(self.table, self.looked_at, None, partitions)
        return {"went": sum(int(self.going(rows).sum()) for rows in stored.tables()), "came": self.came}

    def write(self, lake: SparkLake) -> dict[str, int]:
        """Replace the rows in one commit; returns how many rows `went` and `came`."""
        more = self.more if self.came else None
        rewritten = lake.rewrite(self.table, without(self.going), self.looked_at, source=self.source, more=more)
        return {"went": rewritten.removed, "came": self.came}


def without(going: Callable[[pa.Table], Flags]) -> Callable[[pa.Table], pa.Table | None]:
    """The change of a table by which the rows go that `going` flags."""

    def change(rows: pa.Table) -> pa.Table | None:
        flags = going(rows)
        return rows.filter(pa.array(~flags)) if flags.any() else None

    return change


@dataclass(frozen=True)
class Restatement:
    """The changes of an erasure in histories.

    `since_us`: the time from which the past is known of rows that can't be computed as earlier runs did; None if all of
    it can.
    """

    replacements: Sequence[Replacement]
    since_us: int | None = None

    def write(self, lake: SparkLake) -> dict[str, dict[str, int]]:
        """Change the tables, each in one commit; returns how many rows `went` and `came`, by table."""
        return {each.table.qualified: each.write(lake) for each in self.replacements}

    def count(self, lake: Lake) -> dict[str, dict[str, int]]:
        """The counts that `write` would return; changes nothing."""
        return {each.table.qualified: each.count(lake) for each in self.replacements}


@dataclass(frozen=True)
class _Histories:
    lake: Lake
    source: Source
    choice: Choice
    current_frontiers: SourceFrontiers
    current_publication: Publication

    @cached_property
    def moments(self) -> list[Moment]:
        """The publications, oldest first."""
        listed = publications(self.lake, self.source, self.current_publication)
        return [Moment(micros(each.published), micros(each.reached)) for each in listed]

    @property
    def token(self) -> int:
        """The token of the rows that come, by which they are visible."""
        return (
            self.current_publication.tokens[-1] if self.current_publication.tokens else self.current_publication.settled
        )

    @property
    def since_us(self) -> int:
        """The visible time below which versions are not distinguished."""
        return self.current_frontiers.arrangement.since.time or 0

    def chosen_updates(self, columns: Sequence[str]) -> pa.Table:
        """All chosen updates in the trace, with these columns, also those that count in no window."""
        handles = {"batch": sorted(self.current_frontiers.arrangement.handles())}
        table, read = updates(self.source), [*columns, self.choice.stored]
        stored = self.lake.stored(table, read, self.choice.condition, handles)
        return stored.whole(lambda rows: pa.array(self.choice.of_rows(rows)))

    def counting_updates(self, columns: Sequence[str], where: pc.Expression) -> tuple[pa.Table, pa.Table]:
        """The updates that count and meet `where`, with these columns: all of them, and those that are not chosen."""
        read = [*columns, self.choice.stored]
        state = self.current_frontiers.arrangement
        rows = stored_counting_rows(self.lake, self.source, state, read, where).whole()
        return rows, rows.filter(pa.array(~self.choice.of_rows(rows)))

    def near(self, region: Region) -> tuple[pa.Table, pa.Table]:
        """The updates that can count in a region's windows: all of them, and those that are not chosen."""
        definition = region.definition
        time, reach = f"t_{definition.time}", pc.scalar(False)
        for low, high in (definition.times_at_places(*each) for each in region.rows):
            reach |= (pc.field(time) >= _at(low)) & (pc.field(time) <= _at(high))
        if definition.moves_late_rows:
            drops = self.source.drops
            for low, high in region.rows:
                first, last = (drops.number_at(t) for t in (low, high))
                reach |= (pc.field("seq_no") >= first) & (pc.field("seq_no") <= last)
        for key, values in region.keys.items():
            reach &= pc.field(f"c_{key}").isin(values)
        return self.counting_updates(region.columns, reach)

    def stored_history(self, region: Region) -> pa.Table:
        """The region's history as it is in the table, times in microseconds."""
        definition, schema = region.definition, result_schema(region.definition)
        where = visible_rows(self.current_publication)
        for key, values in region.keys.items():
            where &= pc.field(key).isin(values)
        rows = self.lake.stored(definition.table(), schema.names, where).whole()
        rows = rows.filter(pa.array(region.holds(rows)))
        return pa.table([_cast(rows[field.name], field.type) for field in schema], schema=schema)


def is_traced(lake: Lake, source: Source, choice: Choice, current_frontiers: SourceFrontiers) -> bool:
    """True if the trace has chosen updates; of expired rows it alone has them."""
    handles = {"batch": sorted(current_frontiers.arrangement.handles())}
    stored = lake.stored(updates(source), [choice.stored], choice.condition, handles)
    return any(choice.of_rows(rows).any() for rows in stored.tables())


def _at(time_us: int) -> pa.Scalar:
    return pa.scalar(time_us, pa.timestamp("us", "UTC"))


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type) and pa.types.is_int64(kind):
        return column.cast(pa.timestamp("us", "UTC")).cast(kind)
    return column.cast(kind)


def histories_without(
    lake: Lake,
    source: Source,
    choice: Choice,
    account: ErasureAccount,
    current_frontiers: SourceFrontiers,
    current_publication: Publication,
) -> Restatement:
    """The histories as they would be without the chosen rows; computed again, the result is the same.

    The rows must still be in chunks and in the trace: their changes are found by them.
    """
    histories = _Histories(lake, source, choice, current_frontiers, current_publication)
    of_windows, has_windows_past = _of_windows(histories)
    chosen = histories.chosen_updates(["entity", "row_id"])
    entities = account.entities | set(chosen["entity"].to_pylist()) | ({choice.value} if choice.is_entity else set())
    of_states, has_states_past = _of_states(histories, sorted(entities))
    of_late = _of_late(histories, sorted(account.row_ids | set(chosen["row_id"].to_pylist())))
    has_past = has_windows_past and has_states_past
    return Restatement([*of_windows, *of_states, *of_late], None if has_past else current_publication.published_us - 1)


def _of_windows(histories: _Histories) -> tuple[list[Replacement], bool]:
    """The replacements in histories of windows; and True if all of them go back as far as the stored histories."""
    replacements: list[Replacement] = []
    have_past = True
    for definition in definitions(histories.source):
        columns = ["seq_no", "diff", f"t_{definition.time}", *(f"c_{key}" for key in definition.key)]
        region = Region.of(definition, histories.chosen_updates(columns))
        if region is None:
            continue
        # windows of a key that has the column have chosen rows alone
        alone = histories.choice.column in definition.key
        more, has_past = (None, True) if alone else _without(histories, region)
        have_past = have_past and has_past
        replacements.append(Replacement(definition.table(), [*definition.key, "window_start"], region.holds, more))
    return replacements, have_past


def _without(histories: _Histories, region: Region) -> tuple[pa.Table, bool]:
    """The region's history without the chosen rows, and True if it goes back as far as the stored history.

    It does not if earlier runs followed another definition: then the history begins with the newest publication.
    """
    near, others = histories.near(region)
    identity, since_us, moments = region.definition.identity, histories.since_us, histories.moments
    stored_versions = versions_of(histories.stored_history(region), identity, since_us)
    history = replay(region, others, moments)
    # an interrupted attempt may have written the same history already
    tries = (replay(region, rows, moments) if rows is near else history for rows in (near, others))
    has_past = any(versions_of(again, identity, since_us).equals(stored_versions) for again in tries)
    if not has_past:
        history = replay(region, others, moments[-1:])
    token = pa.repeat(pa.scalar(histories.token, pa.int64()), history.num_rows)
    return history.append_column("token", token), has_past


def _of_states(histories: _Histories, entities: Sequence[str]) -> tuple[list[Replacement], bool]:
    """The replacements in histories of states and chains of these entities; and True if they go back as far as the
    stored histories."""
    lake, source = histories.lake, histories.source
    anew, has_past = ReplayedStates(), True
    if source.state is not None and not histories.choice.is_entity:
        anew, has_past = _states_without(histories, entities)

    def flag_removed(rows: pa.Table) -> Flags:
        return among(rows["entity"], list(entities))

    mores = {STATE: anew.states, CHAINS: anew.segments}
    stored = [table for table in mores if lake.folder.is_stored(table.database, table.table)]
    return [Replacement(table, ["entity"], flag_removed, mores[table], source.name) for table in stored], has_past


def _states_without(histories: _Histories, entities: Sequence[str]) -> tuple[ReplayedStates, bool]:
    """The histories of the entities' states and chains without the chosen rows, and True if they go back as far as the
    stored ones; see `_without`."""
    lake, source, moments = histories.lake, histories.source, histories.moments
    of_entities = pc.field("entity").isin(pa.array(entities, pa.string()))
    rows, others = histories.counting_updates(columns_replayed(source), of_entities)

    def replay(updates: pa.Table, published: Sequence[Moment]) -> ReplayedStates:
        return replayed_states(
            lake, source, updates, published, retention_of(histories.current_frontiers), histories.token
        )

    names = [column.name for column in STATE.columns]
    of_source = {"source": [source.name]}
    stored = lake.stored(STATE, names, visible_rows(histories.current_publication) & of_entities, of_source).whole()
    stored_versions = _state_versions(stored, histories.since_us)
    anew = replay(others, moments)
    tries = (replay(rows, moments) if given is rows else anew for given in (rows, others))
    has_past = any(_state_versions(each.states, histories.since_us).equals(stored_versions) for each in tries)
    return (anew if has_past else replay(others, moments[-1:])), has_past


def _state_versions(history: pa.Table | None, since_us: int) -> pa.Table:
    """The versions of states, as `versions_of` gives them for windows."""
    assert history is not None, "the source has state"
    times = {name: history[name].cast(pa.int64()) for name in ("timestamp", "known_from", "known_to")}
    plain = pa.table({name: times.get(name, history[name]) for name in history.column_names if name != "source"})
    return versions_of(plain, ["entity"], since_us).combine_chunks()


def _of_late(histories: _Histories, row_ids: Sequence[int]) -> list[Replacement]:
    """The replacement in `silver.late`: of a row that was corrected, the versions that are not chosen are listed again.

    Below the horizon such a row stays listed: its versions can't be distinguished there.
    """
    lake, source, choice = histories.lake, histories.source, histories.choice
    if not lake.folder.is_stored(LATE.database, LATE.table):
        return []
    columns = [column.name for column in row_columns(source)]
    chosen_ids = pc.field("row_id").isin(pa.array(row_ids, pa.int64()))
    _, others = histories.counting_updates([*columns, "time", "diff"], chosen_ids)
    listed: list[pa.Table] = []
    for step in taken_in(others, histories.moments):
        touching = others.filter(pa.array(step.touching))
        listed += late_rows(lake, definitions(source), touching, step.now.known_from_us, histories.token)
    kept = _below_horizon(histories, row_ids)

    def flag_removed(rows: pa.Table) -> Flags:
        stays = among(rows["action"], [BELOW, KEPT_BELOW]) & among(rows["row_id"], kept)
        of_entity = choice.flags(rows["entity"]) if choice.is_entity else among(rows["row_id"], list(row_ids))
        return of_entity & ~stays

    more = pa.concat_tables(listed, promote_options="default") if listed else None
    return [Replacement(LATE, ["row_id", "entity", "action"], flag_removed, more, source.name)]


def _below_horizon(histories: _Histories, row_ids: Sequence[int]) -> list[int]:
    """The ids among these of which an update that is not chosen landed below the horizon."""
    handles = {"batch": sorted(histories.current_frontiers.arrangement.handles())}
    where = pc.field(BELOW_HORIZON.name).is_valid() & pc.field("row_id").isin(pa.array(row_ids, pa.int64()))
    read = ["row_id", histories.choice.stored]
    rows = histories.lake.stored(updates(histories.source), read, where, handles).whole()
    return pc.unique(rows["row_id"].filter(pa.array(~histories.choice.of_rows(rows)))).to_pylist()
