"""How the versions of one thing, a window or a state, follow one another in a history table: measures of two gates.

Things are told apart by a hash of 64 bits first: Spark groups by numbers several times faster than by texts. Two things
that share one may look like a fault, so what looks like one is counted once more by the things themselves. They can
hide a fault only where its two sides meet in one hash, once in 10^19.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.gates.measures.query import Measurement, Part, measure, violation
from spark_jobs.storage.sql import name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HASH = "thing"


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of things that the attempt wrote, and those beside them.

    `rows`: a query of rows that are visible: the columns `identity`, `is_live` (else it closes a version),
    `known_from`, `revision`, and `own`: whether the attempt wrote it. `identity`: the columns that tell two things
    apart. `repeated`: the measure of things with more than one standing version.
    """

    rows: str
    identity: Sequence[str]
    repeated: str

    @property
    def measures(self) -> tuple[str, ...]:
        """What is counted: things with several standing versions, with a closing of none, without the next revision."""
        return (self.repeated, "closings_of_nothing", "changed_without_revision")

    def looked_over(self) -> Part:
        """One row per hash."""
        columns = ", ".join(map(name, self.identity))
        hashed = f"SELECT xxhash64({columns}) AS {_HASH}, is_live, known_from, revision, own FROM ({self.rows})"
        return self._part(hashed, (_HASH,))

    def counted(self) -> Part:
        """One row per thing."""
        return self._part(self.rows, self.identity)

    def _part(self, rows: str, identity: Sequence[str]) -> Part:
        """Brought together once, by identity; counted first per version, which is told by when it was known from, then
        per thing. Only numbers are kept of either, see `query`."""
        columns = ", ".join(map(name, identity))
        together = f"SELECT * FROM ({rows}) DISTRIBUTE BY {columns}"
        counts = {
            "opened": "count_if(is_live)",
            "closed": "count_if(NOT is_live)",
            "written": "count_if(own)",
            "new_revision": "max(IF(own AND is_live, revision, NULL))",
            "closed_revision": "max(IF(own AND NOT is_live, revision, NULL))",
        }
        by_version = f"SELECT {columns}, known_from, {_listed(counts)} FROM ({together}) GROUP BY {columns}, known_from"
        told = {
            "standing": "count_if(opened > 0 AND closed = 0)",
            "opened_twice": "count_if(opened > 1)",
            "closed_of_nothing": "count_if(closed > 0 AND opened = 0)",
            "closed_twice": "count_if(closed > 1)",
            "new_revision": "max(new_revision)",
            "closed_revision": "max(closed_revision)",
        }
        relation = f"SELECT {columns}, {_listed(told)} FROM ({by_version}) GROUP BY {columns} HAVING sum(written) > 0"
        faults = (
            "standing > 1 OR opened_twice > 0",
            "closed_of_nothing > 0 OR closed_twice > 0",
            "new_revision <> coalesce(closed_revision + 1, 0)",
        )
        return Part(relation, dict(zip(self.measures, map(violation, faults), strict=True)), (*identity, *told))


def measure_with_versions(
    spark: SparkSession, parts: Sequence[Part], versions: Sequence[Versions], known: Mapping[str, int]
) -> Measurement:
    """`measure` of the parts and of all versions."""
    measured = measure(spark, [*parts, *(each.looked_over() for each in versions)], known)
    counted = [each.counted() for each in versions]
    if any(measured.values[m] for each in versions for m in each.measures):
        again = measure(spark, counted)
        return Measurement(spark, [*parts, *counted], measured.values | again.values, measured.seconds + again.seconds)
    return Measurement(spark, [*parts, *counted], measured.values, measured.seconds)


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{expression} AS {column}" for column, expression in columns.items())
