"""Checks of the versions of a thing (a window or a state), which follow one another in a history.

At first, things are told apart by their hashes, which are sorted as numbers. Two things that share a hash may look
like a fault. So the rows of things that show a fault are examined again by their identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns.plain import Flags, Ints, are, numbers, present
from spark_jobs.engine.hashes.rows import Hashes, hashes
from spark_jobs.engine.measures.sums import Adds
from spark_jobs.engine.restatement.comparison import LIVE

_FAULTS = ("standing", "opened_twice", "closed_of_nothing", "closed_twice")


@dataclass(frozen=True)
class _Marks:
    """The facts of each row that are looked at first, as numbers."""

    things: Hashes
    known_from: Ints
    revision: Ints
    live: Flags
    is_own: Flags

    @classmethod
    def of(cls, rows: pa.Table, identity: Sequence[str], token: int) -> _Marks:
        live, is_own = are(rows["era"], LIVE), numbers(rows["token"]) == token
        things = hashes([rows[column] for column in identity])
        return cls(things, numbers(rows["known_from"]), numbers(rows["revision"], -1), live, is_own)

    def take(self, places: Ints) -> _Marks:
        return _Marks(*(getattr(self, field.name)[places] for field in fields(self)))

    @classmethod
    def together(cls, parts: Sequence[_Marks]) -> _Marks:
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def faulty_things(tables: Iterable[pa.Table], *, identity: Sequence[str], token: int) -> pa.Table:
    """`versions_of_things` of the things that show a fault, and perhaps of a few more.

    Args:
        tables: the rows, some at a time; they are read a second time if a thing shows a fault.
        identity: as for `versions_of_things`.
        token: as for `versions_of_things`.
    """
    doubtful = _doubtful(_Marks.together([_Marks.of(table, identity, token) for table in tables]))
    rows = [
        table.filter(pa.array(np.isin(hashes([table[column] for column in identity]), doubtful)))
        if doubtful.size
        else table.slice(0, 0)
        for table in (tables if doubtful.size else islice(tables, 1))
    ]
    return versions_of_things(pa.concat_tables(rows), identity=identity, token=token)


def _doubtful(marks: _Marks) -> Hashes:
    """The hashes of things that show a fault."""
    rows = marks.take(_in_company(marks.things))
    no_first = marks.take(np.flatnonzero(marks.is_own & ~(marks.live & (marks.revision == 0)))).things
    faulty_alone = no_first[~np.isin(no_first, rows.things)]
    if not len(rows.things):
        return faulty_alone
    rows = rows.take(np.lexsort((rows.known_from, rows.things)))
    begins_thing = _begins(rows.things)
    begins_version = begins_thing | _begins(rows.known_from)
    by_version, by_thing = np.flatnonzero(begins_version), np.flatnonzero(begins_thing)
    opened, closed = (np.add.reduceat(flags.astype(np.int64), by_version) for flags in (rows.live, ~rows.live))
    of_thing = np.flatnonzero(begins_thing[by_version])
    n_current = np.add.reduceat(((opened > 0) & (closed == 0)).astype(np.int64), of_thing)
    twice_or_none = np.add.reduceat(((opened > 1) | (closed > 1) | (opened == 0)).astype(np.int64), of_thing)
    new = np.maximum.reduceat(np.where(rows.is_own & rows.live, rows.revision, -1), by_thing)
    old = np.maximum.reduceat(np.where(rows.is_own & ~rows.live, rows.revision, -1), by_thing)
    wrong = (n_current > 1) | (twice_or_none > 0) | ((new >= 0) & (new != old + 1))
    written = np.logical_or.reduceat(rows.is_own, by_thing)
    return np.concatenate([faulty_alone, rows.things[by_thing][wrong & written]])


def _in_company(things: Hashes) -> Ints:
    """The places of the rows that share their thing with other rows, and perhaps of a few others.

    The function sorts one number per row: the upper bits of its hash, and its place. For 16 million rows that takes
    0.7 s; to sort places by hashes takes 2.3 s.
    """
    lower = np.uint64((1 << len(things).bit_length()) - 1)
    ordered = things & ~lower
    ordered |= np.arange(len(things), dtype=np.uint64)
    ordered.sort()
    alike = (ordered[1:] ^ ordered[:-1]) <= lower
    several = np.zeros(len(things), np.bool_)
    several[1:] |= alike
    several[:-1] |= alike
    return (ordered[several] & lower).astype(np.int64)


def _begins(ordered: npt.NDArray[Any]) -> Flags:
    """Flags of the places at which a run of equal values begins."""
    return np.concatenate(([True], ordered[1:] != ordered[:-1]))


def versions_of_things(rows: pa.Table, *, identity: Sequence[str], token: int) -> pa.Table:
    """One row per thing of which the attempt `token` wrote a row.

    It counts the versions that stand, are opened twice, are closed without having been opened, or are closed twice. It
    also has the greatest revision that the attempt opened, and the greatest one that it closed.

    Args:
        rows: the rows that a publication over the attempt could show: the columns of `identity`, and era, known_from,
            revision, token.
        identity: the columns that tell two things apart. `known_from` tells the versions of a thing apart.
        token: the token of the attempt.
    """
    is_own, live = numbers(rows["token"]) == token, are(rows["era"], LIVE)
    revision = rows["revision"].combine_chunks()
    marks = {
        "opened": pa.array(live.astype(np.int32)),
        "closed": pa.array((~live).astype(np.int32)),
        "written": pa.array(is_own.astype(np.int32)),
        "new": pc.if_else(pa.array(is_own & live), revision, None),
        "old": pc.if_else(pa.array(is_own & ~live), revision, None),
    }
    by_version = [*identity, "known_from"]
    marked = rows.select(by_version)
    for name, column in marks.items():
        marked = marked.append_column(name, column)
    counted = _group(
        marked, by_version, {"opened": "sum", "closed": "sum", "written": "sum", "new": "max", "old": "max"}
    )
    opened, closed = numbers(counted["opened"]), numbers(counted["closed"])
    faults = ((opened > 0) & (closed == 0), opened > 1, (closed > 0) & (opened == 0), closed > 1)
    faults_by_name = dict(zip(_FAULTS, faults, strict=True))
    of_version = counted.select([*identity, "written", "new", "old"])
    for name, flags in faults_by_name.items():
        of_version = of_version.append_column(name, pa.array(flags.astype(np.int32)))
    how = {**dict.fromkeys([*faults_by_name, "written"], "sum"), "new": "max", "old": "max"}
    things = _group(of_version, list(identity), how)
    return things.filter(pc.greater(things["written"], 0))


def _group(rows: pa.Table, by: list[str], how: dict[str, str]) -> pa.Table:
    groups = rows.group_by(by).aggregate(list(how.items()))
    return groups.select([*by, *(f"{name}_{what}" for name, what in how.items())]).rename_columns([*by, *how])


def judge_versions(things: pa.Table, *, repeated: str) -> Adds:
    """Flags of the faulty things, per measure.

    A thing has several standing versions (the measure `repeated`), has a closing row without a version to close, or
    does not have the next revision."""
    n_current, *twice_or_none = (numbers(things[column]) for column in _FAULTS)
    opened_twice, of_nothing, closed_twice = (counts > 0 for counts in twice_or_none)
    new, old = numbers(things["new"]), numbers(things["old"])
    following = np.where(present(things["old"]), old + 1, 0)
    return {
        repeated: (n_current > 1) | opened_twice,
        "closings_of_nothing": of_nothing | closed_twice,
        "changed_without_revision": present(things["new"]) & (new != following),
    }


def at_wrong_time(rows: pa.Table, known_from_us: int) -> Flags:
    """Flags of the rows of an attempt whose times are not those of the publication.

    A live row must be known from the publication on. A closing row must end at the publication a version that was
    known before it.

    Args:
        rows: the columns era, known_from, known_to.
        known_from_us: the time of every change of the publication, in microseconds.
    """
    since, until = numbers(rows["known_from"]), numbers(rows["known_to"])
    has_since, has_until, live = present(rows["known_from"]), present(rows["known_to"]), are(rows["era"], LIVE)
    opens = has_since & (since == known_from_us) & ~has_until
    ends = has_until & has_since & (until == known_from_us) & (since < known_from_us)
    return ~np.where(live, opens, ends)
