"""Corrections of published windows: desired − published, over exactly the windows that an update touches.

A window of a key is *affected* iff the key has a touched row (one that came or went) placed where it can change the
window; `geometry` says for each kind where that is.

Desired windows are recomputed from the rows that stand; published ones are what readers see now. Of both only
affected windows are compared, by key and start (or by what else tells a kind's windows apart). Equal ones (bit for
bit) yield nothing; so an update that changes no result changes no table.

Guarantee: given all standing rows within reach of the affected windows, published + corrections = a recomputation
from all rows.
Not guaranteed: anything about windows that are not affected; rows at the edge of what was read may form parts of them.
Cost: O(n log n) in the rows and windows given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels.equality import same_values
from spark_jobs.kernels.geometry import Geometry
from spark_jobs.kernels.windows import Wanted
from spark_jobs.kernels.windows.rows import encode

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
LIVE, CLOSING = "live", "closing"
SLICE = "slice"
"""Key column that numbers slices of time, where keys are cut into them."""


@dataclass(frozen=True)
class Windowing:
    """How one definition makes windows of rows.

    `build` takes standing rows (key columns, `time`, whatever the aggregates read) and which windows are asked for,
    and gives those: key columns, `window_start`, `window_end` (int64) and one column per aggregate.
    `identity`: columns that tell windows of one time apart, the key's among them; each occurs once.
    `slice_length`: `key` starts with `SLICE`, the number of a slice of so many ticks; a slice holds all rows that bear
    on windows which start in it, and makes no others.
    """

    key: tuple[str, ...]
    identity: tuple[str, ...]
    geometry: Geometry
    build: Callable[[pa.Table, Wanted], pa.Table]
    slice_length: int | None = None


def restate(
    rows: pa.Table,
    published: pa.Table,
    windowing: Windowing,
    *,
    known_from: int,
    everything: bool = False,
    expired: int | None = None,
) -> pa.Table:
    """The corrections of the keys given.

    Args:
        rows: updates within reach of the affected windows: key columns, `time` and `placed` int64 (where the row
            counts, if not at its own time), `row_id` int64, `diff` int64, `touched` bool, and the columns that the
            aggregates read. A row may come (+1) and go (−1); only what remains stands.
        published: key columns, `window_start`, `window_end` int64, the aggregates, `known_from` int64, `revision`
        int32.
        known_from: time of every correction made here.
        everything: all windows are affected (the definition changed).
        expired: windows that end at or before it are not kept: they are taken back where they are published, and no
            row brings them back.

    Returns:
        Columns of `published`, and `known_to` int64, `era`: `live` rows are insertions; `closing` rows take a
        published row back.
    """
    touched = rows.filter(rows.column("touched")).select([*windowing.key, "placed"])

    def wanted(windows: pa.Table) -> Mask:
        asked = _of_slice(windows, windowing) & ~_ended(windows, expired)
        return asked if everything else asked & _affected(windows, touched, windowing)

    desired = windowing.build(standing(rows).drop_columns(["diff", "touched"]), wanted)
    if not everything:
        concerned = _affected(published, touched, windowing) | _ended(published, expired)
        published = published.filter(pa.array(concerned))
    return _difference(desired, published, windowing.identity, known_from)


def _of_slice(windows: pa.Table, windowing: Windowing) -> Mask:
    if windowing.slice_length is None:
        return np.ones(windows.num_rows, np.bool_)
    slices = windows.column("window_start").to_numpy() // windowing.slice_length
    own: Mask = slices == windows.column(SLICE).to_numpy()
    return own


def standing(rows: pa.Table) -> pa.Table:
    """Rows whose diffs sum to more than zero, once each; rows are told apart by all their columns but `touched`."""
    if pc.all(pc.equal(rows.column("diff"), 1)).as_py() is not False:
        return rows
    identity = [name for name in rows.column_names if name not in ("diff", "touched")]
    summed = rows.group_by(identity, use_threads=False).aggregate([("diff", "sum"), ("touched", "max")])
    summed = summed.rename_columns([name.removesuffix("_sum").removesuffix("_max") for name in summed.column_names])
    return summed.filter(pc.greater(summed.column("diff"), 0)).select(rows.column_names)


def key_codes(tables: list[pa.Table], key: tuple[str, ...]) -> list[Ints]:
    """Per table, one number per row that is equal for equal keys across all tables; null equals null."""
    sizes = np.cumsum([0, *(table.num_rows for table in tables)])
    codes = np.zeros(sizes[-1], np.int64)
    for name in key:
        column = pa.chunked_array(
            [chunk for table in tables for chunk in table.column(name).chunks], tables[0].schema.field(name).type
        )
        flat = column.combine_chunks()
        values, distinct = _with_nulls(flat)
        codes, _ = encode(pa.array(codes * (distinct + 1) + values))
    return [codes[sizes[i] : sizes[i + 1]] for i in range(len(tables))]


def _with_nulls(values: pa.Array) -> tuple[Ints, int]:
    codes = np.full(len(values), 0, np.int64)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    present, distinct = encode(values.drop_null())
    codes[valid] = present + 1
    return codes, len(distinct) + 1


def _ended(windows: pa.Table, expired: int | None) -> Mask:
    if expired is None:
        return np.zeros(windows.num_rows, np.bool_)
    ended: Mask = windows.column("window_end").to_numpy() <= expired
    return ended


def _affected(windows: pa.Table, touched: pa.Table, windowing: Windowing) -> Mask:
    window_codes, touched_codes = key_codes([windows, touched], windowing.key)
    start, end = (windows.column(name).to_numpy() for name in ("window_start", "window_end"))
    times = touched.column("placed").to_numpy()
    low, high = windowing.geometry.changed_by(start, end)
    ranks = np.unique(times)
    width = np.int64(ranks.size + 1)
    composite = np.sort(touched_codes * width + np.searchsorted(ranks, times))
    first = np.searchsorted(composite, window_codes * width + np.searchsorted(ranks, low, "left"))
    past = np.searchsorted(composite, window_codes * width + np.searchsorted(ranks, high, "right") - 1, "right")
    affected: Mask = past > first
    return affected


def _difference(desired: pa.Table, published: pa.Table, identity: tuple[str, ...], known_from: int) -> pa.Table:
    """Insertions and closings that turn `published` into `desired`; both hold each identity once."""
    values = [name for name in published.column_names if name not in ("known_from", "revision")]
    desired = desired.select(values).cast(published.select(values).schema)
    ours, theirs = _matches(desired, published, identity)
    same = np.ones(ours.size, np.bool_)
    for name in values:
        same &= same_values(desired.column(name).take(pa.array(ours)), published.column(name).take(pa.array(theirs)))
    inserted, closed = np.ones(desired.num_rows, np.bool_), np.ones(published.num_rows, np.bool_)
    inserted[ours[same]] = False
    closed[theirs[same]] = False
    revision = np.zeros(desired.num_rows, np.int32)
    revision[ours] = published.column("revision").to_numpy()[theirs] + 1
    n = desired.num_rows
    insertions = (
        desired.append_column("known_from", pa.array(np.full(n, known_from, np.int64)))
        .append_column("revision", pa.array(revision))
        .append_column("known_to", pa.nulls(n, pa.int64()))
        .append_column("era", pa.array([LIVE] * n, pa.string()))
        .filter(pa.array(inserted))
    )
    m = published.num_rows
    closings = (
        published.append_column("known_to", pa.array(np.full(m, known_from, np.int64)))
        .append_column("era", pa.array([CLOSING] * m, pa.string()))
        .filter(pa.array(closed))
    )
    return pa.concat_tables([insertions, closings.select(insertions.column_names).cast(insertions.schema)])


def _matches(desired: pa.Table, published: pa.Table, identity: tuple[str, ...]) -> tuple[Ints, Ints]:
    """Rows of both with the same identity, pairwise."""
    ours, theirs = key_codes([desired, published], tuple(name for name in identity if name != "window_start"))
    codes = np.concatenate([ours, theirs])
    starts = np.zeros(codes.size, np.int64)
    if "window_start" in identity:
        starts = np.concatenate([table.column("window_start").to_numpy() for table in (desired, published)])
    side = np.repeat(np.array([0, 1], np.int8), [desired.num_rows, published.num_rows])
    order = np.lexsort((side, starts, codes))
    pair = np.flatnonzero((codes[order][1:] == codes[order][:-1]) & (starts[order][1:] == starts[order][:-1]))
    return order[pair], order[pair + 1] - desired.num_rows
