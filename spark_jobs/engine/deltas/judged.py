"""The deltas of long chains that earlier stretches have judged, for the parents that later stretches name.

A parent may be anywhere before its child. A chain that is restated in stretches of event time has the segments of one
stretch in memory, so what a child needs to know of those before is kept here: about 70 bytes a delta, whatever its
payload. Definition: a child is judged as if all deltas of its chain were in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.deltas.batch import NO_PARENT
from spark_jobs.engine.deltas.ops import Refusal
from spark_jobs.engine.deltas.packing import UNRESOLVED_PARENT
from spark_jobs.engine.deltas.segments import Segments

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]

_SCHEMA = pa.schema(
    [
        ("entity", pa.int64()),
        ("delta_id", pa.string()),
        ("row_id", pa.int64()),
        ("known_from", pa.int64()),
        ("known_to", pa.int64()),
        ("is_applied", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class EarlierDeltas:
    """Deltas of some entities, by code, that come before all others of their chains.

    Attributes:
        entity, row_id: numbers, one per delta.
        delta_id: texts, or null.
        known_from, known_to: the visible times between which a delta is known.
        is_applied: True for each delta that was not taken back and that its chain did not refuse.
    """

    entity: Array
    delta_id: pa.Array
    row_id: Array
    known_from: Array
    known_to: Array
    is_applied: Flags

    def judge_parents(self, segments: Segments) -> Segments:
        """The same segments, in which deltas no longer declare a parent that is applied here. A parent that was judged
        and is not applied is unresolved, unless it is among the deltas of the segments as well."""
        parents = segments.parents
        if parents is None or parents.null_count == len(parents):
            return segments
        chains = segments.entity[segments.deltas.entity]
        earlier, declared = pairs((self.entity, self.delta_id), (chains, parents))
        has_parent = parents.is_valid().to_numpy(zero_copy_only=False)
        is_applied = has_parent & np.isin(declared, earlier[self.is_applied])
        is_gone = has_parent & np.isin(declared, earlier) & ~is_applied
        parent = segments.deltas.parent
        parent = np.where(is_gone & (parent == NO_PARENT), UNRESOLVED_PARENT, parent)
        return replace(segments, deltas=replace(segments.deltas, parent=np.where(is_applied, NO_PARENT, parent)))


@dataclass(slots=True)
class JudgedDeltas:
    """The deltas of all stretches so far, in segments that later stretches do not have."""

    declares_parents: bool = False
    _numbers: dict[str, int] = field(default_factory=dict)
    _deltas: pa.Table = field(default_factory=_SCHEMA.empty_table)

    def add(self, segments: Segments, entities: pa.Array, is_final: Flags) -> None:
        """Add the deltas of the segments that are final: later stretches do not have them. `entities` are the entities
        by code."""
        if segments.parents is None or segments.delta_ids is None:
            return
        self.declares_parents |= segments.parents.null_count < len(segments.parents)
        rows = np.flatnonzero(is_final[segments.deltas.entity])
        numbers = self._numbers_of(segments.entity, entities)
        of_chain = numbers[segments.entity[segments.deltas.entity[rows]]]
        columns = [of_chain, segments.delta_ids.take(pa.array(rows)), segments.deltas.row_id[rows]]
        columns += [column[rows] for column in (segments.known_from, segments.known_to)]
        columns.append((segments.is_current & (segments.refusal == Refusal.NONE))[rows])
        self._deltas = pa.concat_tables([self._deltas, pa.table([pa.array(c) for c in columns], schema=_SCHEMA)])

    def of(self, entities: pa.Array, delta_ids: pa.Array, parents: pa.Array) -> EarlierDeltas | None:
        """The deltas that a stretch needs to know, which has these entities, ids and declared parents; None if no delta
        of the chains has declared a parent so far. The codes of entities are their places."""
        deltas = self._deltas
        if self.declares_parents:
            # all others have been compared with each other before
            needed = pc.unique(pa.concat_arrays([delta_ids, parents])).drop_null()
            deltas = deltas.filter(pc.is_in(deltas["delta_id"], value_set=needed))
        elif parents.null_count == len(parents):
            return None
        code_of_number = np.full(len(self._numbers) + 1, -1)
        for code, name in enumerate(entities.to_pylist()):
            code_of_number[self._numbers.get(name, len(self._numbers))] = code
        code_of_number[-1] = -1
        codes = code_of_number[deltas["entity"].to_numpy()]
        is_of = codes >= 0
        deltas = deltas.filter(pa.array(is_of))
        columns = (deltas[name].to_numpy() for name in ("row_id", "known_from", "known_to", "is_applied"))
        return EarlierDeltas(codes[is_of], deltas["delta_id"].combine_chunks(), *columns)

    def _numbers_of(self, codes: Array, entities: pa.Array) -> Array:
        """Per code, the number of its entity here; entities of other codes than these get none."""
        numbers = np.full(len(entities), -1)
        for code in np.unique(codes).tolist():
            numbers[code] = self._numbers.setdefault(entities[code].as_py(), len(self._numbers))
        return numbers


def pairs(*columns: tuple[Array, pa.Array]) -> list[Array]:
    """Per pair of columns (entities, texts), one number per row: equal for equal rows of all pairs, -1 where the text
    is null."""
    texts = pa.chunked_array([text for _, text in columns], pa.string()).combine_chunks().dictionary_encode()
    places = pc.fill_null(texts.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    entities = np.concatenate([entity for entity, _ in columns])
    numbers = np.where(places < 0, -1, entities * len(texts.dictionary) + places)
    return np.split(numbers, np.cumsum([len(text) for _, text in columns])[:-1])
