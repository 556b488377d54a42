"""The definition of a chain's state, one delta at a time: the slow twin of `fold`, and its oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.deltas.batch import Delta
from spark_jobs.engine.deltas.fold import Transform
from spark_jobs.engine.deltas.ops import Int64OverflowError, Op, Refusal, Status
from spark_jobs.engine.deltas.states import EntityState


class _Refused(Exception):
    """A delta is refused with a reason; the state stays as it was."""


@dataclass
class NaiveEntity:
    """The state of one entity. `vector` has numpy scalars, and None for null; `unseen` are components never seen."""

    dtype: np.dtype[Any]
    dims: int | None = None
    transforms: Mapping[str, Transform] = field(default_factory=dict)
    status: Status = Status.ABSENT
    vector: list[Any] = field(default_factory=list)
    unseen: set[int] = field(default_factory=set)
    applied: list[Delta] = field(default_factory=list)

    def replay(self, deltas: Sequence[Delta]) -> list[Refusal]:
        """Apply `deltas` in the order (event_time, sequence, row_id).

        Returns a reason per delta, in the order given; `NONE` for an applied delta."""
        reasons = [Refusal.NONE] * len(deltas)
        places = [(delta.event_time, delta.sequence, delta.row_id) for delta in deltas]
        for position in sorted(range(len(deltas)), key=lambda i: places[i]):
            try:
                self.apply(deltas[position])
            except _Refused as refused:
                reasons[position] = refused.args[0]
        return reasons

    def apply(self, delta: Delta) -> None:
        """Apply one delta, or leave everything as it was."""
        self._check_row(delta)
        if delta.parent is not None and delta.parent not in {before.row_id for before in self.applied}:
            raise _Refused(Refusal.MISSING_PARENT)
        if delta.op in (Op.CREATE, Op.DENSE):
            self._replace(delta)
        elif self.status is Status.DELETED and delta.op is not Op.UPSERT:
            raise _Refused(Refusal.DELETED)
        elif delta.op is Op.DELETE:
            self.status, self.vector, self.unseen = Status.DELETED, [], set()
        else:
            self._change(delta)
        self.applied.append(delta)

    def state(self) -> EntityState:
        """The state in the form of `States.entity`."""
        last = self.applied[-1] if self.applied else None
        return EntityState(
            status=self.status,
            vector=tuple(None if v is None or i in self.unseen else v.item() for i, v in enumerate(self.vector)),
            seen=tuple(i not in self.unseen for i in range(len(self.vector))),
            event_time=last.event_time if last else None,
            at_delta=last.row_id if last else None,
            delta_count=len(self.applied),
        )

    def _check_row(self, delta: Delta) -> None:
        whole, indexed = delta.op in (Op.CREATE, Op.DENSE), delta.op in (Op.SPARSE, Op.ADD, Op.UPSERT)
        if not whole and len(delta.indices) != len(delta.values):
            raise _Refused(Refusal.UNEQUAL_LISTS)
        numbers = [v for v in delta.values if v is not None]
        if delta.op in (Op.SCALE, Op.OFFSET):
            numbers.append(delta.scalar)
        if not all(np.isfinite(self.dtype.type(number)) for number in numbers):
            raise _Refused(Refusal.NON_FINITE)
        if delta.op is Op.ADD and None in delta.values:
            raise _Refused(Refusal.NULL_OPERAND)
        if whole and (not delta.values or (self.dims is not None and len(delta.values) != self.dims)):
            raise _Refused(Refusal.DIMENSION_MISMATCH)
        if indexed and any(i < 0 or (self.dims is not None and i >= self.dims) for i in delta.indices):
            raise _Refused(Refusal.INDEX_OUT_OF_BOUNDS)
        if delta.op is Op.TRANSFORM and delta.transform not in self.transforms:
            raise _Refused(Refusal.UNKNOWN_TRANSFORM)

    def _replace(self, delta: Delta) -> None:
        if delta.op is Op.CREATE and self.status is Status.LIVE:
            raise _Refused(Refusal.CREATE_ON_LIVE)
        if self.status is Status.LIVE and len(delta.values) != len(self.vector):
            raise _Refused(Refusal.DIMENSION_MISMATCH)
        self.vector = [None if v is None else self.dtype.type(v) for v in delta.values]
        self.status, self.unseen = Status.LIVE, set()

    def _change(self, delta: Delta) -> None:
        if self.status is not Status.LIVE and self.dims is None:
            raise _Refused(Refusal.MISSING_BASE)
        vector, unseen = list(self.vector), set(self.unseen)
        if self.status is not Status.LIVE:
            vector, unseen = [self.dtype.type(0)] * (self.dims or 0), set(range(self.dims or 0))
        if delta.op is Op.TRANSFORM:
            vector = self._transform(self.transforms[str(delta.transform)], vector, unseen)
        elif delta.op in (Op.SPARSE, Op.ADD, Op.UPSERT):
            for index, value in zip(delta.indices, delta.values, strict=True):
                if index >= len(vector):
                    raise _Refused(Refusal.INDEX_OUT_OF_BOUNDS)
                vector[index] = self._change_value(delta, vector[index], value)
                unseen.discard(index)
        else:
            touched = [i for i in range(len(vector)) if delta.op is Op.OFFSET or i not in unseen]
            for index in touched:
                vector[index] = self._change_value(delta, vector[index], delta.scalar)
                unseen.discard(index)
        self.vector, self.unseen, self.status = vector, unseen, Status.LIVE

    def _change_value(self, delta: Delta, old: Any, operand: Any) -> Any:
        if delta.op in (Op.SPARSE, Op.UPSERT):
            return None if operand is None else self.dtype.type(operand)
        if old is None:
            return None
        if self.dtype.kind == "i":
            exact = int(old) * int(operand) if delta.op is Op.SCALE else int(old) + int(operand)
            if not -(2**63) <= exact < 2**63:
                raise _Refused(Refusal.INT64_OVERFLOW)
            return self.dtype.type(exact)
        with np.errstate(over="ignore"):
            number = self.dtype.type(operand)
            result = old * number if delta.op is Op.SCALE else old + number
        if not np.isfinite(result):
            raise _Refused(Refusal.NON_FINITE)
        return result

    def _transform(self, transform: Transform, vector: list[Any], unseen: set[int]) -> list[Any]:
        given: npt.NDArray[Any] = np.array([self.dtype.type(0) if v is None else v for v in vector], dtype=self.dtype)
        try:
            result = transform(given[None, :])[0]
        except Int64OverflowError as overflow:
            raise _Refused(Refusal.INT64_OVERFLOW) from overflow
        if not np.isfinite(result).all():
            raise _Refused(Refusal.NON_FINITE)
        return [
            old if old is None or i in unseen else new for i, (old, new) in enumerate(zip(vector, result, strict=True))
        ]
