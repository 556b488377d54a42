"""The runs of a source, each with its files, its results, the frontiers that it moved, and its publication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from expectations import AUDIT, GATES
from spark_jobs.definitions.definition import definitions
from spark_jobs.errors import ParameterError
from spark_jobs.kernels.comparison import CLOSING, LIVE
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.results import NOTABLE, STOPPED, manifests, results
from spark_jobs.reads.publications import Published, publications_of
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication, visible_rows
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FRONTIERS, STATE, VALIDITY
from spark_jobs.storage.descriptions.times import instant

Row = dict[str, Any]
State = Literal["published", "gate failed", "failed", "refused", "not published", "nothing new"]
REFUSALS = (ParameterError.code, "definition_changed", "seal_gap", "stale_plan", "below_horizon")
"""Codes of errors by which a request is refused before its run lands anything: the source stays as it was."""


@dataclass
class Run:
    """One run of a source.

    `results`: the newest result of each of its checks. `files`: the ledger's rows of its landings. `moves`: the rows of
    the frontiers that it moved; `moved_seal`: true if it moved the seal. `published`: its publication, if it made one.
    `manifest`: its manifest, if it left one.
    """

    run_id: str
    token: int = -1
    results: list[Row] = field(default_factory=list)
    files: list[Row] = field(default_factory=list)
    moves: list[Row] = field(default_factory=list)
    moved_seal: bool = False
    published: Published | None = None
    manifest: Row | None = None

    @property
    def failed(self) -> list[Row]:
        """The results that stopped it."""
        return [result for result in self.results if result["verdict"] in STOPPED]

    @property
    def notable(self) -> list[Row]:
        """The results that did not hold and stopped nothing."""
        return [result for result in self.results if result["verdict"] in NOTABLE]

    @property
    def ran_drops(self) -> bool:
        """True if it is a run of drops, not an audit or a run that merges, holds or erases landed rows."""
        judged = any(result["gate"] != AUDIT for result in self.results)
        return judged or self.moved_seal or bool(self.files or self.manifest)

    @property
    def state(self) -> State:
        """The state in which it ended, or is now."""
        if any(result["gate"] in GATES for result in self.failed):
            return "gate failed"
        if self.failed or (self.manifest or {}).get("outcome") == "failed":
            return "refused" if self._is_refusal else "failed"
        if self.published is not None:
            return "published"
        # a run that has nothing to publish passes its gates and moves nothing
        passed = bool(self.results) and not self.moves
        return "nothing new" if passed or not self.ran_drops else "not published"

    @property
    def _is_refusal(self) -> bool:
        """True if the request was refused before anything was done."""
        did_something = self.results or self.files or self.moves
        return not did_something and (self.manifest or {}).get("error_code") in REFUSALS

    @property
    def has_failed(self) -> bool:
        """True if it ended with a failure; a refusal is none."""
        return self.state in ("gate failed", "failed")

    @property
    def span(self) -> tuple[datetime | None, datetime | None] | None:
        """The bounds `(lo, hi)` of the drops that it was about; None if no manifest and no result has them."""
        spans = [row for row in (self.manifest, *self.results) if row is not None and row["drop_lo"] is not None]
        return (spans[0]["drop_lo"], spans[0]["drop_hi"]) if spans else None

    @property
    def begun(self) -> datetime | None:
        """The first time at which it landed or moved something, by the machine's clock; None if it never did."""
        return min(self._clock(), default=None)

    @property
    def ended(self) -> datetime | None:
        """The last time at which it landed or moved something, by the machine's clock; None if it never did."""
        return max(self._clock(), default=None)

    @property
    def drops(self) -> list[int]:
        """The numbers of the drops of which it landed something, in order."""
        return sorted({row["seq_no"] for row in self.files})

    def _clock(self) -> list[datetime]:
        times = [*(row["landed_at"] for row in self.files), *(row["moved_at"] for row in self.moves)]
        return [time for time in times if time is not None]


def runs(lake: HeldLake, source: Source, files: Iterable[Row]) -> list[Run]:
    """All runs of the source that have left rows in the lake, newest first."""
    of_source = pc.field("source") == source.name
    by_id: dict[str, Run] = {}

    def run_of(row: Mapping[str, Any], token: int) -> Run:
        run = by_id.setdefault(row["run_id"], Run(row["run_id"]))
        run.token = max(run.token, token)
        return run

    for row in files:
        run_of(row, row["landing"]).files.append(row)
    moves = lake.records(FRONTIERS, of_source)
    seal = None
    for row in sorted(moves, key=lambda row: row["token"]):
        run = run_of(row, row["token"])
        run.moves.append(row)
        run.moved_seal |= row["seal"] != seal
        seal = row["seal"]
    for of_run in results(lake, source).values():
        run_of(of_run[0], max(row["token"] for row in of_run)).results = of_run
    for manifest in manifests(lake, source).values():
        run_of(manifest, manifest["token"]).manifest = manifest
    current = publication.load(lake, source)
    for each in publications_of(moves, instant(current.published_us)):
        if each.run_id in by_id:
            by_id[each.run_id].published = each
    return sorted(by_id.values(), key=lambda run: -run.token)


@dataclass(frozen=True)
class Change:
    """The changes of a publication to a published table: the numbers of rows inserted, changed and removed.

    `sample`: the first of these rows, each with `diff`, key columns and values. `key`: the columns that `why` asks for.
    """

    table: str
    key: tuple[str, ...]
    inserted: int
    changed: int
    removed: int
    sample: list[Row]

    @property
    def rows(self) -> int:
        """The number of all rows that differ."""
        return self.inserted + self.changed + self.removed


@dataclass(frozen=True)
class _ShownTable:
    """A published table whose changes are shown: its history, its name, and the columns that are shown."""

    table: Table
    name: str
    key: tuple[str, ...]
    values: tuple[str, ...]
    of_source: pc.Expression


def changes(lake: HeldLake, source: Source, published: Published, most: int) -> list[Change]:
    """The changes of a publication, table by table; of each up to `most` new rows, with the rows that they replace."""
    current = publication.load(lake, source)
    shown = []
    for each in definitions(source):
        values = tuple(column.name for column in each.value_columns())
        shown.append(_ShownTable(each.table(), f"silver.{each.name}", tuple(each.identity), values, pc.scalar(True)))
    if source.state is not None:
        hidden = {*(c.name for c in VALIDITY), "source", "names", "seen"}
        values = tuple(c.name for c in STATE.columns if c.name not in hidden)
        shown.append(_ShownTable(STATE, f"gold.{source.name}", ("entity",), values, pc.field("source") == source.name))
    return [_change(lake, each, published, current, most) for each in shown if lake.version(each.table) >= 0]


def _change(lake: HeldLake, table: _ShownTable, published: Published, current: Publication, most: int) -> Change:
    time, key = pa.scalar(published.known_from, INSTANT), list(table.key)
    shown, order = visible_rows(current) & table.of_source, [(column, "ascending") for column in key]
    halves = (("known_from", LIVE), ("known_to", CLOSING))
    came, went = (
        lake.stored(table.table, table.values, shown & (pc.field(bound) == time), {"era": [era, "closed"]})
        .whole()
        .sort_by(order)
        for bound, era in halves
    )
    # a key of which a row came and a row went is a row that changed
    both = came.select(key).join(went.select(key), keys=key, join_type="inner").num_rows
    first = (came if len(came) else went).slice(0, most).to_pylist()
    diff = 1 if len(came) else -1
    sample = [{"diff": diff, **row} for row in first]
    if diff == 1:
        keys = {_key(row, table) for row in first}
        bounds = pc.field(key[0]).isin([row[key[0]] for row in first])
        sample += [{"diff": -1, **row} for row in went.filter(bounds).to_pylist() if _key(row, table) in keys]
    sample.sort(key=lambda row: (_key(row, table), row["diff"]))
    return Change(table.name, table.key, len(came) - both, both, len(went) - both, sample)


def _key(row: Row, table: _ShownTable) -> tuple[str, ...]:
    return tuple(str(row[column]) for column in table.key)
