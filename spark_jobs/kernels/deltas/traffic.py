"""Reads and writes of states by class of entities, for the compaction strategy adaptive.

A class holds the entities that have had about as many deltas: those whose number has as many binary digits. What is
often written is so kept apart from what hardly ever changes, and a class is large enough to be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def entity_class(deltas: Array | int) -> Array:
    """The class of entities with so many deltas: 1, 2 and 3, 4 to 7, … are the classes 1, 2, 3, …; 0 is without any."""
    return np.frexp(np.maximum(deltas, 0))[1].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Measured over all time: `reads_of_all` reads took in every entity, `reads` one entity of the class; a class has
    so many `entities`, which have had so many `deltas`."""

    reads_of_all: int = 0
    reads: Mapping[int, int] = field(default_factory=dict)
    entities: Mapping[int, int] = field(default_factory=dict)
    deltas: Mapping[int, int] = field(default_factory=dict)

    def of_entities(self, deltas: Array) -> tuple[Array, Array]:
        """Reads and writes of the class of each entity that has had so many deltas.

        A class that no entity was in yet counts as one entity, with the fewest deltas of the class.
        """
        classes, place = np.unique(entity_class(deltas), return_inverse=True)
        reads, writes = [], []
        for number in classes.tolist():
            entities = max(self.entities.get(number, 0), 1)
            reads.append(self.reads_of_all * entities + self.reads.get(number, 0))
            writes.append(max(self.deltas.get(number, 0), 1 << max(number - 1, 0)))
        return np.array(reads, np.float64)[place], np.array(writes, np.float64)[place]
