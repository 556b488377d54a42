"""Reads and writes of states by class of entities, for the compaction strategy adaptive.

A class has the entities with a similar number of deltas: those whose numbers have the same count of binary digits. So
entities that are often written are separate from those that hardly change, and a class is large enough to be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def entity_class(deltas: Array | int) -> Array:
    """The class of entities by their number of deltas: class 0 for 0, 1 for 1, 2 for 2 to 3, 3 for 4 to 7, …"""
    return np.frexp(np.maximum(deltas, 0))[1].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counts over all time: `reads_of_all` are reads of every entity.

    The others are by class: `reads` of a single entity, the number of `entities`, and the number of their `deltas`."""

    reads_of_all: int = 0
    reads: Mapping[int, int] = field(default_factory=dict)
    entities: Mapping[int, int] = field(default_factory=dict)
    deltas: Mapping[int, int] = field(default_factory=dict)

    def of_entities(self, deltas: Array) -> tuple[Array, Array]:
        """The reads and the writes of the class of each entity, given the number of deltas of each entity.

        A class without entities counts as one entity, with the least number of deltas of the class.
        """
        classes, place = np.unique(entity_class(deltas), return_inverse=True)
        reads, writes = [], []
        for number in classes.tolist():
            entities = max(self.entities.get(number, 0), 1)
            reads.append(self.reads_of_all * entities + self.reads.get(number, 0))
            writes.append(max(self.deltas.get(number, 0), 1 << max(number - 1, 0)))
        return np.array(reads, np.float64)[place], np.array(writes, np.float64)[place]
