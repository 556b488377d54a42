"""How the versions of one thing, a window or a state, follow one another in a history."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..comparison import LIVE
from .sums import Adds, Flags, are, numbers, present

_FAULTS = ("standing", "opened_twice", "closed_of_nothing", "closed_twice")


def versions_of_things(rows: pa.Table, *, identity: Sequence[str], token: int) -> pa.Table:
    """One row per thing of which the attempt `token` wrote a row: how many versions stand, are opened or closed twice,
    or are closed without having been opened; the greatest revision that it opened, and that it closed.

    Args:
        rows: what a publication over the attempt could show: `identity`, era, known_from, revision, token.
        identity: columns that tell two things apart. A version of a thing is told by when it was known from.
        token: the attempt's.
    """
    own, live = numbers(rows["token"]) == token, are(rows["era"], LIVE)
    revision = rows["revision"].combine_chunks()
    marks = {
        "opened": pa.array(live.astype(np.int32)),
        "closed": pa.array((~live).astype(np.int32)),
        "written": pa.array(own.astype(np.int32)),
        "new": pc.if_else(pa.array(own & live), revision, None),
        "old": pc.if_else(pa.array(own & ~live), revision, None),
    }
    by_version = [*identity, "known_from"]
    marked = rows.select(by_version)
    for name, column in marks.items():
        marked = marked.append_column(name, column)
    marked = marked.filter(_of_written(marked, identity, own))
    counted = _grouped(
        marked, by_version, {"opened": "sum", "closed": "sum", "written": "sum", "new": "max", "old": "max"}
    )
    opened, closed = numbers(counted["opened"]), numbers(counted["closed"])
    faults = ((opened > 0) & (closed == 0), opened > 1, (closed > 0) & (opened == 0), closed > 1)
    told = dict(zip(_FAULTS, faults, strict=True))
    of_version = counted.select([*identity, "written", "new", "old"])
    for name, flags in told.items():
        of_version = of_version.append_column(name, pa.array(flags.astype(np.int32)))
    how = {**dict.fromkeys([*told, "written"], "sum"), "new": "max", "old": "max"}
    things = _grouped(of_version, list(identity), how)
    return things.filter(pc.greater(things["written"], 0))


def _of_written(rows: pa.Table, identity: Sequence[str], own: Flags) -> pa.Array:
    """Which rows may be of a thing of which a row is the attempt's: those that share a value of the first column with
    it; then all rows of the thing do, and a few others."""
    written = pc.unique(rows[identity[0]].filter(pa.array(own)))
    return pc.is_in(rows[identity[0]], value_set=written)


def _grouped(rows: pa.Table, by: list[str], how: dict[str, str]) -> pa.Table:
    found = rows.group_by(by).aggregate(list(how.items()))
    return found.select([*by, *(f"{name}_{what}" for name, what in how.items())]).rename_columns([*by, *how])


def judge_versions(things: pa.Table, *, repeated: str) -> Adds:
    """Things with several standing versions (the measure `repeated`), with a closing of none, without the next
    revision."""
    standing, *twice_or_none = (numbers(things[column]) for column in _FAULTS)
    opened_twice, of_nothing, closed_twice = (counts > 0 for counts in twice_or_none)
    new, old = numbers(things["new"]), numbers(things["old"])
    following = np.where(present(things["old"]), old + 1, 0)
    return {
        repeated: (standing > 1) | opened_twice,
        "closings_of_nothing": of_nothing | closed_twice,
        "changed_without_revision": present(things["new"]) & (new != following),
    }


def at_wrong_time(rows: pa.Table, known_from_us: int) -> Flags:
    """Whether a row of an attempt is not known from its publication on, or does not end what was known before it.

    Args:
        rows: the columns era, known_from, known_to.
        known_from_us: the time that every change of the publication carries.
    """
    since, until = numbers(rows["known_from"]), numbers(rows["known_to"])
    has_since, has_until, live = present(rows["known_from"]), present(rows["known_to"]), are(rows["era"], LIVE)
    opens = has_since & (since == known_from_us) & ~has_until
    ends = has_until & has_since & (until == known_from_us) & (since < known_from_us)
    return ~np.where(live, opens, ends)
