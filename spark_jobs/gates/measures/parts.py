"""One pass over what a stage wrote: parts that each add to named measures, summed exactly.

A part reads rows of data files, lets a kernel say what each of them adds, and keeps the sums alone. What several rows
tell of, such as the versions of a window, is brought together first. A small pass runs in this process, without a Spark
job; a large one is cut into pieces that are the tasks of one job. Both run the same function.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.exchange import answers
from spark_jobs.gates.verdicts import MAX_EXAMPLES
from spark_jobs.kernels.measures.hashing import in_share
from spark_jobs.kernels.measures.sums import Addends, Adds, adding, taken, total
from spark_jobs.storage.data_files import StoredRows
from spark_jobs.threads import THREADS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANYWHERE = object()
"""In place of a value, where rows do not tell it."""

Judge = Callable[[pa.Table], Adds]
"""Per row of a table what it adds to each measure."""

ROWS_A_TASK = 1 << 19
"""Rows of a task of a large pass."""
MEASURED_HERE = 1 << 25
"""Rows of a part that this process goes through itself, a few at a time."""
ROWS_TOGETHER = 1 << 23
"""Rows of which numbers are kept at once, some 40 bytes of each, where several rows tell of one thing. Each share of
more is a further reading of all."""


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
        """The part in shares: each reads all rows to find those of its things."""
        del most_rows  # to read again costs more than to keep
        shares = max(-(-self.n_rows // ROWS_TOGETHER), 1)
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
class Ground:
    """By what two sums that must be equal are broken down, to say where they differ.

    Args:
        column: of the rows of both sides, or of the label of a part.
        name: under which an example has a value of the column.
        shown: how it has it.
        known: of measures that no part adds to: per value what they are.
    """

    column: str
    name: str
    shown: Callable[[Any], Any] = str
    known: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """Measured values by name, the seconds that it took, and the way to rows that violate."""

    parts: Sequence[AnyPart]
    values: dict[str, int]
    seconds: float = 0.0
    ground: Ground | None = None

    def examples(self, broken: Sequence[tuple[str, ...]]) -> dict[str, list[dict[str, Any]]]:
        """What breaks invariants, by the first measure of each; nothing where no row says so.

        An invariant of one measure is broken by the rows that add to it, of which there are up to `MAX_EXAMPLES`. Of an
        invariant that compares two, no row that adds to a sum is wrong by itself: the examples say where the sums
        differ, by the `ground`, with both of them.
        """
        examples = self._adding([measures[0] for measures in broken if len(measures) == 1])
        pairs = [measures for measures in broken if len(measures) == 2]
        if self.ground is not None and pairs:
            sums = self._sums_by(self.ground, {measure for pair in pairs for measure in pair})
            for pair in pairs:
                examples[pair[0]] = _differences(self.ground, pair, *(sums[measure] for measure in pair))
        return {measure: rows for measure, rows in examples.items() if rows}

    def _adding(self, measures: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        examples: dict[str, list[dict[str, Any]]] = {measure: [] for measure in measures}
        for piece in self._pieces():
            wanted = [measure for measure, rows in examples.items() if len(rows) < MAX_EXAMPLES]
            if not wanted:
                break
            _add_examples(piece, wanted, examples)
        return examples

    def _sums_by(self, ground: Ground, measures: Collection[str]) -> dict[str, Counter[Any]]:
        sums: dict[str, Counter[Any]] = {measure: Counter(ground.known.get(measure, {})) for measure in measures}
        for piece in self._pieces():
            for rows, adds in piece.judged(shown=True):
                for measure in adds.keys() & sums.keys():
                    for value, added in _by_value(rows, piece.label, ground, adds[measure]):
                        sums[measure][value] += added
        return sums

    def _pieces(self) -> Iterator[AnyPart]:
        return (piece for part in self.parts for piece in part.pieces(ROWS_A_TASK))


def _add_examples(piece: AnyPart, measures: Sequence[str], examples: dict[str, list[dict[str, Any]]]) -> None:
    for rows, adds in piece.judged(shown=True):
        for measure in measures:
            room = MAX_EXAMPLES - len(examples[measure])
            places = adding(adds[measure])[:room] if measure in adds else np.zeros(0, np.int64)
            if places.size:
                shows = list(piece.shows) if isinstance(piece, Part) else rows.column_names
                shown = rows.select(shows).take(pa.array(places)).to_pylist()
                examples[measure].extend({**piece.label, **row} for row in shown)


def _by_value(rows: pa.Table, label: Mapping[str, str], ground: Ground, addends: Addends) -> Iterator[tuple[Any, int]]:
    """What rows add for each value of the ground, null among them."""
    if ground.column not in rows.column_names:
        yield label.get(ground.column, _ANYWHERE), total(addends)
        return
    values = rows[ground.column].combine_chunks().dictionary_encode()
    places = pc.fill_null(values.indices, len(values.dictionary)).to_numpy()
    order = np.argsort(places, kind="stable")
    bounds = np.flatnonzero(np.diff(places[order], prepend=-1, append=-1))
    for begin, end in pairwise(bounds.tolist()):
        place = int(places[order[begin]])
        value = values.dictionary[place].as_py() if place < len(values.dictionary) else None
        yield value, total(taken(addends, order[begin:end]))


def _differences(ground: Ground, pair: Sequence[str], one: Counter[Any], other: Counter[Any]) -> list[dict[str, Any]]:
    values = one.keys() | other.keys()
    if _ANYWHERE in values:
        return []
    apart = [value for value in values if one[value] != other[value]]
    return [
        {ground.name: None if value is None else ground.shown(value), pair[0]: one[value], pair[1]: other[value]}
        for value in sorted(apart, key=lambda value: (value is None, value))
    ]


def measure(
    spark: SparkSession,
    parts: Sequence[AnyPart],
    known: Mapping[str, int] | None = None,
    ground: Ground | None = None,
) -> Measurement:
    """What all parts add up to. `known`: values of measures that no part adds to, or that are 0 without rows."""
    begun = time.monotonic()
    here = all(part.n_rows <= MEASURED_HERE for part in parts)
    pieces = [piece for part in parts for piece in part.pieces(MEASURED_HERE // THREADS if here else ROWS_A_TASK)]
    sums = Counter[str](known or {})
    for of_piece in answers(spark, pieces, _sums, here=here):
        sums.update(json.loads(of_piece))
    return Measurement(parts, dict(sums), time.monotonic() - begun, ground)


def _sums(piece: AnyPart) -> bytes:
    """What the rows of a piece add up to, as JSON: numbers may pass 64 bits."""
    sums = Counter[str]()
    for _, adds in piece.judged(shown=False):
        for name, addends in adds.items():
            sums[name] += total(addends)
    return json.dumps(sums).encode()


def of_landings(landings: Sequence[int]) -> pc.Expression:
    """Whether a row is of one of these landings."""
    return pc.field("landing").isin(pa.array(list(landings), pa.int64()))
