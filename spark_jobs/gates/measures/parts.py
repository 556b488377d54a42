"""One pass over what a stage wrote: parts that each add to named measures, summed exactly.

A part reads rows of data files, lets a kernel say what each of them adds, and keeps the sums alone. What several rows
tell of, such as the versions of a window, is brought together first. A small pass runs in this process, without a Spark
job; a large one is cut into pieces that are the tasks of one job. Both run the same function.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.gates.verdicts import MAX_EXAMPLES
from spark_jobs.kernels.measures.hashing import in_share
from spark_jobs.kernels.measures.sums import Adds, adding, total
from spark_jobs.storage.data_files import StoredRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Judge = Callable[[pa.Table], Adds]
"""Per row of a table what it adds to each measure."""

ROWS_HERE = 1 << 20
"""Rows that this process goes through itself; a Spark job takes longer to begin."""
ROWS_A_TASK = 1 << 21
"""Rows of a task of a large pass."""
SHARES_READ = 4
"""How many times as many a task keeps numbers of, where it has to keep any."""


@dataclass(frozen=True)
class Part:
    """Rows that are judged each by itself; `shows` are the columns of an example, beside what `label` says of all."""

    rows: StoredRows | pa.Table
    judge: Judge
    shows: Sequence[str]
    label: Mapping[str, str] = field(default_factory=dict)

    def pieces(self, most_rows: int) -> list[Part]:
        """The part, cut so that none has many more rows."""
        if isinstance(self.rows, pa.Table):
            return [self]
        return [replace(self, rows=rows) for rows in self.rows.split(most_rows)] or [self]

    @property
    def n_rows(self) -> int:
        """At most how many rows it reads."""
        return self.rows.num_rows if isinstance(self.rows, pa.Table) else self.rows.n_rows

    def judged(self, *, shown: bool) -> Iterator[tuple[pa.Table, Adds]]:
        """The rows, with the columns `shows` if they are `shown`, and what they add."""
        if isinstance(self.rows, pa.Table):
            tables = iter([self.rows])
        else:
            rows = self.rows.with_columns([*self.rows.columns, *(self.shows if shown else ())])
            # of no rows, too, it is said what they add: nothing
            tables = chain([rows.none()], rows.tables())
        for table in tables:
            yield table, self.judge(table)


@dataclass(frozen=True)
class OfShare:
    """The rows of one of some shares, some at a time and first none; gone through as often as wanted. Rows with equal
    values in the column `by` are in one share."""

    rows: StoredRows
    by: str
    share: tuple[int, int] = (0, 1)

    def __iter__(self) -> Iterator[pa.Table]:
        share, shares = self.share
        yield self.rows.none()
        for table in self.rows.tables():
            yield table if shares == 1 else table.filter(pa.array(in_share(table[self.by], share, shares)))


@dataclass(frozen=True)
class Together:
    """Rows of which several tell of one thing. `gather` takes each of `rows`, some at a time, and gives a table whose
    rows `judge` takes."""

    rows: Sequence[OfShare]
    gather: Callable[..., pa.Table]
    judge: Judge
    label: Mapping[str, str] = field(default_factory=dict)

    def pieces(self, most_rows: int) -> list[Together]:
        """The part in shares of a few times so many rows: each reads all rows to find those of its things, of which it
        keeps little."""
        shares = max(-(-self.n_rows // (SHARES_READ * most_rows)), 1)
        return [
            replace(self, rows=[replace(rows, share=(share, shares)) for rows in self.rows]) for share in range(shares)
        ]

    @property
    def n_rows(self) -> int:
        """At most how many rows it reads."""
        return sum(rows.rows.n_rows for rows in self.rows)

    def judged(self, *, shown: bool) -> Iterator[tuple[pa.Table, Adds]]:
        """The things that `gather` finds, and what they add."""
        del shown  # a thing's columns are few
        gathered = self.gather(*self.rows)
        yield gathered, self.judge(gathered)


AnyPart = Part | Together


@dataclass(frozen=True)
class Measurement:
    """Measured values by name, the seconds that it took, and the way to rows that violate."""

    parts: Sequence[AnyPart]
    values: dict[str, int]
    seconds: float = 0.0

    def examples(self, measures: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Per measure up to `MAX_EXAMPLES` rows that add to it; nothing for a measure that no row adds to."""
        found: dict[str, list[dict[str, Any]]] = {}
        for part in self.parts:
            for piece in part.pieces(ROWS_A_TASK):
                _add_examples(piece, measures, found)
        return found


def _add_examples(piece: AnyPart, measures: Sequence[str], found: dict[str, list[dict[str, Any]]]) -> None:
    for rows, adds in piece.judged(shown=True):
        for measure in measures:
            room = MAX_EXAMPLES - len(found.get(measure, []))
            places = adding(adds[measure])[:room] if measure in adds else np.zeros(0, np.int64)
            if places.size:
                shows = list(piece.shows) if isinstance(piece, Part) else rows.column_names
                shown = rows.select(shows).take(pa.array(places)).to_pylist()
                found.setdefault(measure, []).extend({**piece.label, **row} for row in shown)


def measure(spark: SparkSession, parts: Sequence[AnyPart], known: Mapping[str, int] | None = None) -> Measurement:
    """What all parts add up to. `known`: values of measures that no part adds to, or that are 0 without rows."""
    begun = time.monotonic()
    pieces = [piece for part in parts for piece in part.pieces(ROWS_A_TASK)]
    sums = Counter[str](known or {})
    small = sum(part.n_rows for part in parts) <= ROWS_HERE
    for of_piece in map(_sums, pieces) if small else _in_tasks(spark, pieces):
        for name, value in of_piece.items():
            sums[name] += value
    return Measurement(parts, dict(sums), time.monotonic() - begun)


def _sums(piece: AnyPart) -> dict[str, int]:
    """What the rows of a piece add up to."""
    sums = Counter[str]()
    for _, adds in piece.judged(shown=False):
        for name, addends in adds.items():
            sums[name] += total(addends)
    return dict(sums)


def _in_tasks(spark: SparkSession, pieces: Sequence[AnyPart]) -> Iterator[dict[str, int]]:
    """`_sums` of each piece, in the tasks of one job; numbers that pass 64 bits travel as text."""
    numbered = spark.range(0, len(pieces), 1, len(pieces))
    rows = numbered.mapInArrow(partial(_sums_of_listed, pieces=pieces), "sums STRING").collect()
    return (json.loads(row.sums) for row in rows)


def _sums_of_listed(batches: Iterator[pa.RecordBatch], *, pieces: Sequence[AnyPart]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sums = [json.dumps(_sums(pieces[place])) for place in batch.column("id").to_pylist()]
        yield pa.RecordBatch.from_pydict({"sums": pa.array(sums, pa.string())})


def of_landings(landings: Sequence[int]) -> pc.Expression:
    """Whether a row is of one of these landings."""
    return pc.field("landing").isin(pa.array(list(landings), pa.int64()))
