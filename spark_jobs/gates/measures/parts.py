"""One pass over the rows that a stage wrote: parts that each add to named measures, summed exactly.

A part reads rows of data files. A kernel computes the addends of each row, and only the sums are kept. If several
rows describe one thing, such as the versions of a window, they are gathered first. A small pass runs in this process,
without a Spark job. A large pass is cut into pieces, which are the tasks of one job. Both run the same function.
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

from spark_jobs.distribution import cut_pass
from spark_jobs.engine.hashes import in_share
from spark_jobs.engine.measures import Addends, Adds, nonzero_places, take_amounts, total
from spark_jobs.exchange import answers
from spark_jobs.gates.verdicts import MAX_EXAMPLES
from spark_jobs.storage.delta.data_files import StoredRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANYWHERE = object()
"""The stand-in for a value of the ground if neither the rows nor their part's label have it."""

Judge = Callable[[pa.Table], Adds]
"""A function from a table to the addends of each measure, one addend per row."""

ROWS_A_TASK, ROWS_A_THREAD = 1 << 19, 1 << 22
"""The number of rows in a task of a Spark job, about, and in a piece that a thread of this process reads."""
BYTES_KEPT = 40
"""The bytes of the numbers that are kept of each row, if rows are gathered."""
ROWS_TOGETHER = 1 << 23
"""The most rows for which numbers are kept in memory at once, if rows are gathered. More rows are divided into shares,
and each share reads all rows again."""


@dataclass(frozen=True)
class EachRow:
    """A part whose rows are judged one by one. Examples show the columns `shows`, and the entries of `label`, which are
    the same for all rows."""

    rows: StoredRows | pa.Table
    judge: Judge
    shows: Sequence[str]
    label: Mapping[str, str] = field(default_factory=dict)

    def pieces(self, most_rows: int) -> list[EachRow]:
        """The part, cut into pieces of about `most_rows` rows at most."""
        if isinstance(self.rows, pa.Table):
            return [self]
        return [replace(self, rows=rows) for rows in self.rows.split(most_rows)] or [self]

    @property
    def n_rows(self) -> int:
        """An upper bound of the number of rows that it reads."""
        return self.rows.num_rows if isinstance(self.rows, pa.Table) else self.rows.n_rows

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept of its rows: none, since a row is judged by itself."""
        return 0

    @property
    def n_bytes(self) -> int:
        """The approximate bytes of the rows that it reads."""
        return self.rows.nbytes if isinstance(self.rows, pa.Table) else self.rows.n_bytes

    def judge_rows(self, *, with_examples: bool) -> Iterator[tuple[pa.Table, Adds]]:
        """The rows, some at a time, and their addends; if `with_examples`, the rows include the columns `shows`."""
        if isinstance(self.rows, pa.Table):
            tables = iter([self.rows])
        else:
            rows = self.rows.with_columns([*self.rows.columns, *(self.shows if with_examples else ())])
            # an empty table first, so that each measure has a sum even without rows: 0
            tables = chain([rows.none()], rows.tables())
        for table in tables:
            yield table, self.judge(table)


@dataclass(frozen=True)
class OfShare:
    """The rows of one share, some at a time, after an empty table; it can be iterated repeatedly.

    `share` is the number of the share, and the number of shares. Rows with equal values in the column `by` are in the
    same share."""

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
    """A part in which several rows describe one thing. `gather` takes the iterables in `rows` and returns a table with
    the things, which `judge` judges."""

    rows: Sequence[OfShare]
    gather: Callable[..., pa.Table]
    judge: Judge
    label: Mapping[str, str] = field(default_factory=dict)

    def pieces(self, most_rows: int) -> list[Together]:
        """The part, divided into shares of `ROWS_TOGETHER` rows. Each share reads all rows to find its own."""
        del most_rows  # smaller shares would read all rows more often, which costs more than keeping rows
        shares = max(-(-self.n_rows // ROWS_TOGETHER), 1)
        return [
            replace(self, rows=[replace(rows, share=(share, shares)) for rows in self.rows]) for share in range(shares)
        ]

    @property
    def n_rows(self) -> int:
        """An upper bound of the number of rows that it reads."""
        return sum(rows.rows.n_rows for rows in self.rows)

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept of its rows while they are gathered."""
        return BYTES_KEPT * self.n_rows

    @property
    def n_bytes(self) -> int:
        """The approximate bytes of the rows that it reads."""
        return sum(rows.rows.n_bytes for rows in self.rows)

    def judge_rows(self, *, with_examples: bool) -> Iterator[tuple[pa.Table, Adds]]:
        """The things that `gather` returns, and their addends."""
        del with_examples  # things have few columns, so all are shown
        gathered = self.gather(*self.rows)
        yield gathered, self.judge(gathered)


AnyPart = EachRow | Together


@dataclass(frozen=True)
class Ground:
    """The column by which two sums that must be equal are broken down, to show where they differ.

    Args:
        column: the name of the column in the rows of both sides, or of an entry in the label of a part.
        name: the name under which an example has a value of the column.
        as_example: the function that converts such a value for an example.
        given_sums: the sums by value of the measures that no part adds to.
    """

    column: str
    name: str
    as_example: Callable[[Any], Any] = str
    given_sums: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """The measured values by name, the seconds that measuring took, and the parts, to find examples of violations."""

    parts: Sequence[AnyPart]
    values: dict[str, int]
    seconds: float = 0.0
    ground: Ground | None = None

    def examples(self, broken: Sequence[tuple[str, ...]]) -> dict[str, list[dict[str, Any]]]:
        """Examples for broken invariants, by the first measure of each; an invariant without examples is left out.

        An invariant of one measure is broken by the rows that add to it; up to `MAX_EXAMPLES` of them are returned. An
        invariant that compares two measures is not broken by single rows. Its examples are the values of the `ground`
        for which the two sums differ, with both sums.
        """
        examples = self._gather_examples([measures[0] for measures in broken if len(measures) == 1])
        pairs = [measures for measures in broken if len(measures) == 2]
        if self.ground is not None and pairs:
            sums = self._sums_by(self.ground, {measure for pair in pairs for measure in pair})
            for pair in pairs:
                examples[pair[0]] = _differences(self.ground, pair, *(sums[measure] for measure in pair))
        return {measure: rows for measure, rows in examples.items() if rows}

    def _gather_examples(self, measures: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        examples: dict[str, list[dict[str, Any]]] = {measure: [] for measure in measures}
        for piece in self._pieces():
            wanted = [measure for measure, rows in examples.items() if len(rows) < MAX_EXAMPLES]
            if not wanted:
                break
            _add_examples(piece, wanted, examples)
        return examples

    def _sums_by(self, ground: Ground, measures: Collection[str]) -> dict[str, Counter[Any]]:
        sums: dict[str, Counter[Any]] = {measure: Counter(ground.given_sums.get(measure, {})) for measure in measures}
        for piece in self._pieces():
            for rows, adds in piece.judge_rows(with_examples=True):
                for measure in adds.keys() & sums.keys():
                    for value, added in _by_value(rows, piece.label, ground, adds[measure]):
                        sums[measure][value] += added
        return sums

    def _pieces(self) -> Iterator[AnyPart]:
        return (piece for part in self.parts for piece in part.pieces(ROWS_A_TASK))


def _add_examples(piece: AnyPart, measures: Sequence[str], examples: dict[str, list[dict[str, Any]]]) -> None:
    for rows, adds in piece.judge_rows(with_examples=True):
        for measure in measures:
            room = MAX_EXAMPLES - len(examples[measure])
            places = nonzero_places(adds[measure])[:room] if measure in adds else np.zeros(0, np.int64)
            if places.size:
                shows = list(piece.shows) if isinstance(piece, EachRow) else rows.column_names
                new_examples = rows.select(shows).take(pa.array(places)).to_pylist()
                examples[measure].extend({**piece.label, **row} for row in new_examples)


def _by_value(rows: pa.Table, label: Mapping[str, str], ground: Ground, addends: Addends) -> Iterator[tuple[Any, int]]:
    """The sums of the addends for each value of the ground, including null."""
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
        yield value, total(take_amounts(addends, order[begin:end]))


def _differences(ground: Ground, pair: Sequence[str], one: Counter[Any], other: Counter[Any]) -> list[dict[str, Any]]:
    values = one.keys() | other.keys()
    if _ANYWHERE in values:
        return []
    apart = [value for value in values if one[value] != other[value]]
    return [
        {ground.name: None if value is None else ground.as_example(value), pair[0]: one[value], pair[1]: other[value]}
        for value in sorted(apart, key=lambda value: (value is None, value))
    ]


def measure(
    spark: SparkSession | None,
    parts: Sequence[AnyPart],
    given_values: Mapping[str, int] | None = None,
    ground: Ground | None = None,
) -> Measurement:
    """The measurement of all parts.

    `given_values`: the values of measures that no part adds to, and zeros for measures without a value without rows.
    """
    start_s = time.monotonic()
    sums = Counter[str](given_values or {})
    pieces: dict[bool, list[AnyPart]] = {True: [], False: []}
    for part in parts:
        cut = cut_pass(spark, part, ROWS_A_TASK, part.kept_bytes)
        pieces[cut.here] += part.pieces(ROWS_A_THREAD if cut.here else cut.rows_a_piece)
    for here, of_place in pieces.items():
        for of_piece in answers(spark, of_place, _sums, here=here):
            sums.update(json.loads(of_piece))
    return Measurement(parts, dict(sums), time.monotonic() - start_s, ground)


def _sums(piece: AnyPart) -> bytes:
    """The sums of a piece by measure, as JSON, since they may exceed 64 bits."""
    sums = Counter[str]()
    for _, adds in piece.judge_rows(with_examples=False):
        for name, addends in adds.items():
            sums[name] += total(addends)
    return json.dumps(sums).encode()


def of_landings(landings: Sequence[int]) -> pc.Expression:
    """The condition on files' rows that the column `landing` is one of these landings."""
    return pc.field("landing").isin(pa.array(list(landings), pa.int64()))
