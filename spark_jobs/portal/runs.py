"""The runs of a source, each with its files, its results, the frontiers that it moved, and its publication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from expectations import AUDIT, GATES
from spark_jobs.definitions.definition import definitions
from spark_jobs.engine.restatement import CLOSING, LIVE
from spark_jobs.errors import ParameterError
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.results import NOTABLE, STOPPED, manifest_of_run, manifests, results, results_of_run
from spark_jobs.reads.publications import PublicationEntry, publications_of
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication, visible_rows
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FRONTIERS, STATE, VALIDITY
from spark_jobs.storage.descriptions.times import instant, micros

Row = dict[str, Any]
State = Literal["published", "gate failed", "failed", "refused", "not published", "nothing new"]
REFUSALS = (ParameterError.code, "definition_changed", "seal_gap", "stale_plan", "below_horizon")
"""Codes of errors by which a request is refused before its run lands anything: the source stays as it was."""


@dataclass
class Run:
    """One run of a source.

    `results`: the newest results of its checks, as `results` of `portal.results` gives them; `whole_run` has all of
    them, and the stages in the manifest. `files`: the ledger's rows of its landings. `moves`: the rows of
    the frontiers that it moved; `moved_seal`: true if it moved the seal. `published`: its publication, if it made one.
    `manifest`: its manifest, if it left one.
    """

    run_id: str
    token: int = -1
    results: list[Row] = field(default_factory=list)
    files: list[Row] = field(default_factory=list)
    moves: list[Row] = field(default_factory=list)
    moved_seal: bool = False
    published: PublicationEntry | None = None
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

    def numbers(self, source: Source) -> list[int]:
        """The numbers of the drops that it was about, the first and the last at least; empty if it was about none."""
        span = self.span
        if not self.drops and span is not None and span[0] is not None and span[1] is not None:
            return [source.drops.number_at(micros(span[0])), source.drops.number_at(micros(span[1]) - 1)]
        return self.drops

    def title(self, source: Source) -> str:
        """The drops that it was about in words; its kind if it was about none."""
        numbers = self.numbers(source)
        if not numbers:
            return "upkeep" if not self.ran_drops else "no drop"
        first, last = (source.drops.label(n) for n in (numbers[0], numbers[-1]))
        return first if first == last else f"{first} to {last}"

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
    # the frontiers' state as a document is most of a row, and of use for the newest one alone
    moved = [name for name in FRONTIERS.column_names if name != "state"]
    moves = lake.rows(FRONTIERS, moved, of_source).to_pylist()
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


def whole_run(lake: HeldLake, source: Source, run: Run) -> Run:
    """The run with all its results, and its manifest with stages and outputs."""
    return replace(
        run,
        results=results_of_run(lake, source, run.run_id),
        manifest=manifest_of_run(lake, source, run.run_id),
    )


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

    @property
    def numbers(self) -> list[str]:
        """The columns of the sample that have numbers."""
        first = self.sample[0] if self.sample else {}
        return [name for name, value in first.items() if isinstance(value, int | float)]

    @property
    def pairs(self) -> list[Row]:
        """The sample by key: each row `after` the publication and the row `before` it, None where there is none."""
        by_key: dict[tuple[str, ...], Row] = {}
        for row in self.sample:
            pair = by_key.setdefault(tuple(str(row[column]) for column in self.key), {"before": None, "after": None})
            pair["after" if row["diff"] > 0 else "before"] = row
        return list(by_key.values())


@dataclass(frozen=True)
class _ShownTable:
    """A published table whose changes are shown: its history, its name, and the columns that are shown."""

    table: Table
    name: str
    key: tuple[str, ...]
    values: tuple[str, ...]
    of_source: pc.Expression


def changes(lake: HeldLake, source: Source, published: PublicationEntry, most: int) -> list[Change]:
    """The changes of a publication, table by table; of each up to `most` new rows, with the rows that they replace."""
    current = publication.load(lake, source)
    tables = []
    for each in definitions(source):
        values = tuple(column.name for column in each.value_columns())
        tables.append(_ShownTable(each.table(), f"silver.{each.name}", tuple(each.identity), values, pc.scalar(True)))
    if source.state is not None:
        hidden = {*(c.name for c in VALIDITY), "source", "names", "seen"}
        values = tuple(c.name for c in STATE.columns if c.name not in hidden)
        tables.append(_ShownTable(STATE, f"gold.{source.name}", ("entity",), values, pc.field("source") == source.name))
    by_table = [_change(lake, each, published, current, most) for each in tables if lake.version(each.table) >= 0]
    return [replace(each, sample=[with_components(source, row) for row in each.sample]) for each in by_table]


def with_components(source: Source, row: Row) -> Row:
    """A row of published states with a column for each component, in place of the vectors; other rows as they are."""
    vector = row.get("ints") or row.get("floats")
    components = () if source.state is None else tuple(source.state.components)
    if "ints" not in row or not isinstance(vector, list) or len(vector) != len(components):
        return row
    others = {name: value for name, value in row.items() if name not in ("ints", "floats", "names", "seen")}
    return others | dict(zip(components, vector, strict=True))


def _change(lake: HeldLake, table: _ShownTable, published: PublicationEntry, current: Publication, most: int) -> Change:
    time, key = pa.scalar(published.known_from, INSTANT), list(table.key)
    visible, order = visible_rows(current) & table.of_source, [(column, "ascending") for column in key]
    halves = (("known_from", LIVE), ("known_to", CLOSING))
    came, went = (
        lake.stored(table.table, table.values, visible & (pc.field(bound) == time), {"era": [era, "closed"]})
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


def stage_numbers(stage: Mapping[str, Any]) -> Row:
    """The numbers of a stage's report by their names in words, without zeros and those that have a column."""
    numbers: Row = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for inner, part in value.items():
                add(f"{name} {inner}", part)
        elif value not in (None, 0, 0.0, [], ""):
            numbers[name.replace("_", " ").strip()] = instant(value) if name.endswith("_us") else value

    for name, value in stage.items():
        if name not in _IN_COLUMNS:
            add(name, datetime.fromisoformat(value) if name == "began" else value)
    return numbers


_IN_COLUMNS = ("stage", "seconds", "commits", "gate")
