"""One query per gate: parts that each add to named measures, summed into one row.

A part is a relation and, per measure, what each of its rows adds. Each part is summed by itself, in the pass that reads
its rows, and the sums are united: so a gate costs one Spark job, and one more per table read for Delta's listing of
files. What is summed can also be shown: an example of a failed measure is a row that adds to it.

Spark adds numbers of 64 bits in the code that it compiles for a scan; decimals are objects, and a group that collects
values or keeps a text is sorted. So measures are sums of whole numbers, and a group keeps nothing but numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_jobs.gates.verdicts import MAX_EXAMPLES
from spark_jobs.storage.sql import literal, name
from spark_jobs.storage.times import utc_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WORD = "shiftright(row_id, 6)"
"""SQL of the word of 64 bits that has a row id's bit."""
BITS = "bit_or(shiftleft(1L, CAST(row_id & 63 AS INT)))"
"""SQL of a word's bits, of all row ids of a group. A number, unlike Spark's bitmaps, for which it would sort."""


@dataclass(frozen=True, slots=True)
class Part:
    """`relation`: a query. `adds`: measure -> SQL of the whole number a row adds. `shows`: an example's columns.

    `traced`: the query whose rows are the examples, where those of `relation` are summed too far to show any.
    `wide`: the measures whose sum may pass 64 bits.
    """

    relation: str
    adds: Mapping[str, str]
    shows: Sequence[str]
    traced: str | None = None
    wide: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Measurement:
    """Measured values by name, the seconds that it took, and the way to rows that violate."""

    spark: SparkSession
    parts: Sequence[Part]
    values: dict[str, int]
    seconds: float = 0.0

    def plus(self, other: Measurement) -> Measurement:
        """Both together, of different measures."""
        both = self.values | other.values
        return Measurement(self.spark, [*self.parts, *other.parts], both, self.seconds + other.seconds)

    def examples(self, measures: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Per measure up to `MAX_EXAMPLES` rows that add to it; nothing for a measure that no row adds to."""
        found: dict[str, list[dict[str, Any]]] = {}
        for measure in measures:
            for part in self.parts:
                rows = self._violating(part, measure)
                if rows:
                    found[measure] = [*found.get(measure, []), *rows][:MAX_EXAMPLES]
        return found

    def _violating(self, part: Part, measure: str) -> list[dict[str, Any]]:
        if measure not in part.adds:
            return []
        shown = ", ".join(map(name, part.shows))
        query = (
            f"SELECT {shown} FROM ({part.traced or part.relation}) WHERE {part.adds[measure]} <> 0 LIMIT {MAX_EXAMPLES}"
        )
        return utc_rows(self.spark.sql(query))


def violation(condition: str) -> str:
    """1 for a row that meets `condition`, else 0; a condition that is null counts as not met."""
    return f"IF({condition}, 1, 0)"


def measure(spark: SparkSession, parts: Sequence[Part], known: Mapping[str, int] | None = None) -> Measurement:
    """Sum all parts in one query; a measure without rows is 0. `known`: values of measures that no part adds to."""
    begun = time.monotonic()
    measures = list(dict.fromkeys(m for part in parts for m in part.adds))
    united = " UNION ALL ".join(_sums(part, measures) for part in parts)
    sums = ", ".join(f"CAST(coalesce(sum({name(m)}), 0) AS STRING) AS {name(m)}" for m in measures)
    with _planned_once(spark):
        row = spark.sql(f"SELECT {sums} FROM ({united})").collect()[0]
    values = {**(known or {}), **{m: int(row[m]) for m in measures}}
    return Measurement(spark, parts, values, time.monotonic() - begun)


def _sums(part: Part, measures: Sequence[str]) -> str:
    """One row: what all rows of the part add to each measure."""

    def total(measure: str) -> str:
        if measure not in part.adds:
            return "CAST(0 AS DECIMAL(38, 0))"
        number = "DECIMAL(38, 0)" if measure in part.wide else "BIGINT"
        return f"CAST(sum(CAST({part.adds[measure]} AS {number})) AS DECIMAL(38, 0))"

    return f"SELECT {', '.join(f'{total(m)} AS {name(m)}' for m in measures)} FROM ({part.relation})"


@contextmanager
def _planned_once(spark: SparkSession) -> Iterator[None]:
    """Without adaptive execution, which runs every shuffle of these tiny queries as a job of its own."""
    setting = "spark.sql.adaptive.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "false")
    try:
        yield
    finally:
        spark.conf.set(setting, str(before))


def timestamp(time_us: int) -> str:
    """SQL of an instant."""
    return f"timestamp_micros({time_us})"


def listed(numbers: Sequence[int]) -> str:
    """SQL of a list for IN; `(NULL)`, which nothing is in, for none."""
    return f"({', '.join(str(int(n)) for n in numbers) or 'NULL'})"


def texts(values: Sequence[str]) -> str:
    """SQL of a list of texts for IN; `(NULL)` for none."""
    return f"({', '.join(map(literal, values)) or 'NULL'})"
