"""One entity's chain: its history delta by delta, and the rows that bring it back to a state of the past.

A rollback consists of new deltas: rows in the form of the source's files, which land like any others. Nothing is
rewritten. So the history shows the deltas that were rolled back, and as-of reads of earlier times keep their answers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_jobs.engine.deltas import (
    LATEST,
    REGISTERED,
    ChainVersion,
    EntityState,
    Op,
    Segments,
    Status,
    deltas_back,
    states_for,
    versions,
)
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.reads.file_times import STEPS_US, written_time
from spark_jobs.reads.point import ReadPoint
from spark_jobs.restatement.chains import published_segments
from spark_jobs.sources import Source, State
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.lake import FrameLake
from spark_jobs.trace.horizon import check_state_time

Row = dict[str, Any]


class RollbackNotExpressible(TidemarkError):
    """No row of the source can bring the entity back to that state. Facts: `entity`, `at_us`; none of them if the
    source reads change events."""

    code = "rollback_not_expressible"


def entity_history(lake: FrameLake, source: Source, entity: str) -> list[ChainVersion]:
    """The published deltas of one entity that count now, in order, each with the state after it; times in microseconds.

    Deltas that retention has removed are part of the state before the first one. Empty for an entity without deltas.

    Raises:
        ParameterError: the source keeps no chains.
        NotPublished: nothing is published yet.
    """
    return versions(_segments(lake, source, entity), transforms=REGISTERED)


def rollback_rows(lake: FrameLake, source: Source, entity: str, to_us: int, *, at_us: int) -> list[Row]:
    """The rows that have to land so that the entity has at `at_us` the state that it had at `to_us` (microseconds).

    A row maps columns to values, with times as the source's files write them: see `written_time`. Empty if the entity
    has that state already.

    Raises:
        ParameterError: the entity has no published delta, `at_us` is not later than all of them, or the files' format
            of time can't express `at_us`.
        BelowHorizon: `to_us` or `at_us` lies before the horizon; a row that lands there changes nothing.
        RollbackNotExpressible: the source reads change events, its mode has no row that does this, or a delta id can't
            be made for the row.
    """
    check_rows_land(source)
    point = ReadPoint.open(lake, source)
    for time in (to_us, at_us):
        check_state_time(point.horizon_us, time)
    segments = _segments(lake, source, entity)
    if not len(segments):
        raise ParameterError(
            expected=f"an entity that {source.name} has published deltas of", found=repr(entity),
            next_step="check its spelling",
        )  # fmt: skip
    then, now = (_state_at(segments, time) for time in (to_us, LATEST))
    if len(segments.deltas) and at_us <= int(segments.deltas.event_time.max()):
        newest = instant(int(segments.deltas.event_time.max())).isoformat()
        raise ParameterError(
            expected=f"a time after the newest delta of {entity!r}, {newest}", found=instant(at_us).isoformat(),
            next_step="name a later time for the rollback to take effect",
        )  # fmt: skip
    if not deltas_back(entity, now, then, event_time=at_us, row_id=0):
        return []
    made = _Rows(source, entity, at_us).back(now, then)
    if made is None:
        raise RollbackNotExpressible(
            expected=f"a state that rows of mode {_state(source).mode} can bring {entity!r} to",
            found=f"the one at {instant(to_us).isoformat()}, {then.status.name.lower()}: {then.vector}",
            consequence="no row was made",
            next_step="declare `delete_when` where an entity has to go, or use the mode operations",
            entity=entity,
            at_us=to_us,
        )
    return made


class _Rows:
    """The rows of one entity's rollback, as far apart in time as the least step that the source's files can express."""

    def __init__(self, source: Source, entity: str, at_us: int) -> None:
        self._source, self._entity, self._at_us = source, entity, at_us
        # a part of the delta id that is a time gets the time of the row
        ids = [c for c in source.delta_id or () if source.columns[c].type in ("timestamp", "date")]
        self._times = {column: source.columns[column] for column in (*source.timelines.values(), *ids)}
        for name, column in self._times.items():
            if written_time(column, at_us) is None:
                raise ParameterError(
                    expected=f"a time that the format {column.formats[0]} of {name!r} says",
                    found=instant(at_us).isoformat(),
                    next_step="name a full second, minute or day, as the format needs",
                )

    def back(self, now: EntityState, then: EntityState) -> list[Row] | None:
        """The rows that lead from the state `now` to the state `then`; None if no rows of the source do."""
        state = _state(self._source)
        if state.operations is not None:
            return self._by_operations(state.operations.op, state.operations.values, now, then)
        if then.status is not Status.LIVE:
            return self._deleting_rows(0)
        columns = [c for c in state.components.values() if isinstance(c, str)]
        if state.mode == "diff":
            return [self._row(0, dict(zip(columns, then.vector, strict=True)))]
        if state.mode == "upsert":
            lost = any(
                v is None and old is not None for v, old in zip(then.vector, now.vector or then.vector, strict=True)
            )
            begins = self._deleting_rows(0) if lost else []
            return (
                None
                if begins is None
                else [*begins, self._row(len(begins), dict(zip(columns, then.vector, strict=True)))]
            )
        return self._by_sums(state, now, then)

    def _by_sums(self, state: State, now: EntityState, then: EntityState) -> list[Row] | None:
        """One row that adds the difference; None if the state's type can't represent the sums exactly, or a component
        that adds a constant would need another difference."""
        change: Row = {}
        kind = np.dtype(state.datatype).type
        # an entity without a state starts from nothing
        before = now.vector or (None,) * len(then.vector)
        for source, old, new in zip(state.components.values(), before, then.vector, strict=True):
            difference = (new or 0) - (old or 0)
            if not isinstance(source, str):
                if difference != source:
                    return None
                continue
            try:
                exact = kind(old or 0) + kind(difference) == kind(new or 0)
            except OverflowError:
                return None
            if not exact:
                return None
            change[source] = difference
        return [self._row(0, change)]

    def _by_operations(self, op: str, values: str | None, now: EntityState, then: EntityState) -> list[Row] | None:
        if then.status is not Status.LIVE:
            return [self._row(0, {op: Op.DELETE.name.lower()})]
        if values is None:
            return None
        listed = f"[{', '.join('null' if v is None else repr(v) for v in then.vector)}]"
        gone = now.status is Status.LIVE and len(now.vector) != len(then.vector)
        begins = [self._row(0, {op: Op.DELETE.name.lower()})] if gone else []
        return [*begins, self._row(len(begins), {op: Op.DENSE.name.lower(), values: listed})]

    def _deleting_rows(self, place: int) -> list[Row] | None:
        deletes = _state(self._source).delete_when
        return None if deletes is None else [self._row(place, {deletes.column: deletes.values[0]})]

    def _row(self, place: int, values: Row) -> Row:
        """A row `place` steps after the rollback's time; columns of the delta id without a value get one that no other
        row has."""
        at_us = self._at_us + place * self._step()
        times = {name: written_time(column, at_us) for name, column in self._times.items()}
        needed = dict.fromkeys(name for name, column in self._source.columns.items() if not column.optional)
        row = {**needed, self._source.entity: self._entity, **times}
        row |= {c: self._landable(c, v) for c, v in values.items()}
        return row | {c: self._identity(c, at_us) for c in self._source.delta_id or () if row.get(c) is None}

    def _step(self) -> int:
        return next(
            step
            for step in STEPS_US
            if all(written_time(column, self._at_us + step) is not None for column in self._times.values())
        )

    def _identity(self, name: str, at_us: int) -> str | int:
        """The value of the delta id's column `name`: one that no other row has.

        Raises:
            RollbackNotExpressible: the column is neither a text nor a whole number.
        """
        kind = self._source.columns[name].type
        if kind not in ("string", "int"):
            raise RollbackNotExpressible(
                expected="a delta id of texts, whole numbers and times",
                found=f"{name!r}, a {kind}, which can't tell the row from others",
                consequence="no row was made",
                next_step="write the row by hand, with an id that no row has",
                entity=self._entity,
                at_us=at_us,
            )
        return at_us if kind == "int" else f"rollback-{self._entity}-{at_us}"

    def _landable(self, column: str, value: Any) -> Any:
        """The value in the type of the column: a state of doubles has 4.0 where an `int` column needs 4."""
        whole = isinstance(value, float) and value.is_integer() and self._source.columns[column].type == "int"
        return int(value) if whole else value


def _state_at(segments: Segments, event_us: int) -> EntityState:
    asked = (np.array([time]) for time in (0, event_us, LATEST))
    return states_for(segments, *asked, transforms=REGISTERED).entity(0)


def check_keeps_chains(source: Source) -> None:
    """Refuse a source that keeps no chains.

    Raises:
        ParameterError: the source keeps none.
    """
    if not source.keeps_chains:
        raise ParameterError(
            expected="a source whose chains are kept",
            found=source.name,
            next_step="declare `compaction` in the source file, and run once with --accept-definition",
        )


def check_rows_land(source: Source) -> None:
    """Refuse a source whose records are change events: no file of it can have the rows of a rollback.

    Raises:
        RollbackNotExpressible: the source declares an `envelope`.
    """
    envelope = source.landing.dialect().get("envelope")
    if envelope is not None:
        raise RollbackNotExpressible(
            expected="a source whose records are rows",
            found=f"{source.name}, whose records are change events ({envelope})",
            consequence="no row was made",
            next_step="correct the row in the database that the events come from: its next event brings it here",
        )


def _segments(lake: FrameLake, source: Source, entity: str) -> Segments:
    check_keeps_chains(source)
    return published_segments(lake, source, ReadPoint.open(lake, source).publication, entity)


def _state(source: Source) -> State:
    assert source.state is not None, "a source that keeps chains has state"
    return source.state
