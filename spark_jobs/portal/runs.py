"""The runs of a source, each with its files, its results, the frontiers that it moved, and its publication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from expectations import AUDIT, GATES
from spark_jobs.errors import ParameterError
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.results import (
    NOTABLE,
    STOPPED,
    Checks,
    is_text,
    manifest_of_run,
    manifests,
    results_of_run,
    urgency,
)
from spark_jobs.reads.publications import PublicationEntry, publications_of
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.tables import FILES, FRONTIERS
from spark_jobs.storage.descriptions.times import instant

Row = dict[str, Any]
State = Literal["published", "gate failed", "failed", "refused", "not published", "nothing new"]
REFUSALS = (ParameterError.code, "definition_changed", "seal_gap", "stale_plan", "below_horizon", "rows_expired")
"""Codes of errors by which a request is refused before its run lands anything: the source stays as it was."""


_MOVES = ("run_id", "token", "moved_at", "seal", "reached", "published")
_NEVER = np.iinfo(np.int64).min
Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Run:
    """One run of a source in numbers; `whole_run` has its rows.

    `drops`: the numbers of the drops of which it landed something, in order, and `rows` the rows that came. `moves`:
    the number of times that it moved the frontiers; `moved_seal`: true if it moved the seal. `checks`: the number of
    its results; `is_judged`: true if some are of a gate. `findings`: the newest results that did not pass, the worst
    first. `published`: its publication, if it made one. `outcome` and `error_code` are those of its manifest; without
    one they are None. `span_us`: the bounds of the drops that it was about; None if no manifest and no result has them.
    `clock_us`: the first and the last time at which it landed or moved something, by the machine's clock.
    """

    run_id: str
    token: int = -1
    drops: tuple[int, ...] = ()
    rows: int = 0
    moves: int = 0
    moved_seal: bool = False
    checks: int = 0
    is_judged: bool = False
    findings: Sequence[Row] = ()
    published: PublicationEntry | None = None
    outcome: str | None = None
    error_code: str | None = None
    span_us: tuple[int, int] | None = None
    clock_us: tuple[int, int] | None = None

    @property
    def failed(self) -> list[Row]:
        """The results that stopped it."""
        return [result for result in self.findings if result["verdict"] in STOPPED]

    @property
    def notable(self) -> list[Row]:
        """The results that did not hold and stopped nothing."""
        return [result for result in self.findings if result["verdict"] in NOTABLE]

    @property
    def ran_drops(self) -> bool:
        """True if it is a run of drops, not an audit or a run that merges, holds or erases landed rows."""
        return self.is_judged or self.moved_seal or bool(self.drops or self.outcome)

    @property
    def state(self) -> State:
        """The state in which it ended, or is now."""
        failed = self.failed if self.findings else ()
        if any(result["gate"] in GATES for result in failed):
            return "gate failed"
        if failed or self.outcome == "failed":
            return "refused" if self._is_refusal else "failed"
        if self.published is not None:
            return "published"
        # a run that has nothing to publish passes its gates and moves nothing
        passed = self.checks > 0 and not self.moves
        return "nothing new" if passed or not self.ran_drops else "not published"

    @property
    def _is_refusal(self) -> bool:
        """True if the request was refused before anything was done."""
        did_something = self.checks or self.drops or self.moves
        return not did_something and self.error_code in REFUSALS

    @property
    def has_failed(self) -> bool:
        """True if it ended with a failure; a refusal is none."""
        return self.state in ("gate failed", "failed")

    @property
    def started(self) -> datetime | None:
        """The first time at which it landed or moved something, by the machine's clock; None if it never did."""
        return None if self.clock_us is None else instant(self.clock_us[0])

    @property
    def ended(self) -> datetime | None:
        """The last time at which it landed or moved something, by the machine's clock; None if it never did."""
        return None if self.clock_us is None else instant(self.clock_us[1])

    def numbers(self, source: Source) -> Sequence[int]:
        """The numbers of the drops that it was about, the first and the last at least; empty if it was about none."""
        if not self.drops and self.span_us is not None:
            lo, hi = self.span_us
            return [source.drops.number_at(lo), source.drops.number_at(hi - 1)]
        return self.drops

    def title(self, source: Source) -> str:
        """The drops that it was about in words; its kind if it was about none."""
        numbers = self.numbers(source)
        if not numbers:
            return "upkeep" if not self.ran_drops else "no drop"
        first, last = (source.drops.label(n) for n in (numbers[0], numbers[-1]))
        return first if first == last else f"{first} to {last}"


@dataclass(slots=True)
class WholeRun(Run):
    """A run with its rows: all results as `results_of_run` gives them, the ledger's rows of its landings, and its
    manifest with stages and outputs."""

    results: list[Row] = field(default_factory=list)
    files: list[Row] = field(default_factory=list)
    manifest: Row | None = None


@dataclass(frozen=True)
class Runs(Sequence[Run]):
    """The runs of a source, newest first. They stay in memory as columns; a `Run` is made when it is asked for.

    Of each run by its place: `ids` and the arrays. `landed`: pairs of a place and the number of a drop, in order. By
    run id: `findings` and `publications`. Times are in microseconds, _NEVER if there is none.
    """

    ids: Sequence[str]
    token: Ints
    rows: Ints
    moves: Ints
    checks: Ints
    has_moved_seal: Any
    is_judged: Any
    landed: Ints
    outcome: Sequence[str | None]
    error_code: Sequence[str | None]
    span_us: Ints
    clock_us: Ints
    findings: Mapping[str, Sequence[Row]]
    publications: Mapping[str, PublicationEntry]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Run: ...
    @overload
    def __getitem__(self, place: slice) -> list[Run]: ...
    def __getitem__(self, place: int | slice) -> Run | list[Run]:
        """The run at a place, or the runs at several."""
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        i = range(len(self))[place]
        run_id = self.ids[i]
        span_us, clock_us = tuple(self.span_us[i].tolist()), tuple(self.clock_us[i].tolist())
        return Run(
            *(run_id, int(self.token[i]), self._drops(i), int(self.rows[i])),
            *(int(self.moves[i]), bool(self.has_moved_seal[i]), int(self.checks[i]), bool(self.is_judged[i])),
            *(self.findings.get(run_id, ()), self.publications.get(run_id), self.outcome[i], self.error_code[i]),
            None if _NEVER in span_us else span_us,
            None if _NEVER in clock_us else clock_us,
        )

    def find(self, run_id: str) -> Run | None:
        """The run of this id; None if there is none."""
        return self[self.ids.index(run_id)] if run_id in self.ids else None

    def _drops(self, place: int) -> tuple[int, ...]:
        first, end = np.searchsorted(self.landed[:, 0], (place, place + 1))
        return tuple(self.landed[first:end, 1].tolist())

    def newest_over_drops(self, source: Source) -> dict[int, int]:
        """The place of the newest run of each drop that a run was about, by the drop's number; refused runs do not
        count."""
        lo, hi = self.span_us[:, 0], self.span_us[:, 1]
        has_drops = np.isin(np.arange(len(self)), self.landed[:, 0])
        has_manifest = np.array([outcome is not None for outcome in self.outcome], bool)
        ran = self.is_judged | self.has_moved_seal | has_drops | has_manifest
        did_nothing = (self.checks == 0) & (self.moves == 0) & ~has_drops
        for place in np.flatnonzero(ran & did_nothing).tolist():
            ran[place] = self[place].state != "refused"
        is_about = ran & (lo >= source.drops.start_us) & (hi > lo)
        first, last = np.zeros((2, len(self)), np.int64)
        first[is_about] = source.drops.numbers_at(lo[is_about])
        last[is_about] = source.drops.numbers_at(hi[is_about] - 1) + 1
        newest: dict[int, int] = {}
        for place, begin, end in zip(range(len(self)), first.tolist(), last.tolist(), strict=True):
            for number in range(begin, end):
                newest.setdefault(number, place)
        for place, number in self.landed[ran[self.landed[:, 0]]].tolist():
            newest[number] = min(place, newest.get(number, place))
        return newest


def runs(lake: HeldLake, source: Source, current: Publication, files: pa.Table, of_checks: Checks) -> Runs:
    """All runs of the source that have left rows in the lake, newest first. `files`: the source's ledger; `current`:
    its publication in force."""
    moves = lake.of_source(FRONTIERS, source.name, _MOVES).sort_by("token")
    of_runs, results = manifests(lake, source), of_checks.rows
    ids, (landed, moved, judged, ended) = _codes([table["run_id"] for table in (files, moves, results, of_runs)])
    token = np.full(len(ids), -1)
    tokens = (files["landing"], moves["token"], results["token"], of_runs["token"])
    for codes, of_rows in zip((landed, moved, judged, ended), tokens, strict=True):
        np.maximum.at(token, codes, of_rows.to_numpy())
    order = np.argsort(-token, kind="stable")
    place = np.empty(len(ids), np.int64)
    place[order] = np.arange(len(ids))
    landed, moved, judged, ended = (place[codes] for codes in (landed, moved, judged, ended))
    rows = np.zeros(len(ids), np.int64)
    np.add.at(rows, landed, pc.fill_null(files["rows"], 0).to_numpy())
    seals = _micros(moves["seal"])
    has_moved_seal, is_judged = np.zeros((2, len(ids)), bool)
    has_moved_seal[moved[seals != np.concatenate(([_NEVER], seals))[:-1]]] = True
    is_judged[judged[~is_text(results["gate"], AUDIT)]] = True
    span_us = np.full((len(ids), 2), _NEVER)
    # of several rows of a run the last one stays, and of a run with a manifest that
    for codes, table in ((judged, results), (ended, of_runs)):
        bounds = np.stack([_micros(table[name]) for name in ("drop_lo", "drop_hi")], axis=1)
        has_bounds = (bounds != _NEVER).all(axis=1)
        span_us[codes[has_bounds]] = bounds[has_bounds]
    outcome, error_code = np.full((2, len(ids)), None, object)
    outcome[ended], error_code[ended] = (np.array(of_runs[n].to_pylist(), object) for n in ("outcome", "error_code"))
    findings: dict[str, list[Row]] = {}
    for row in sorted(of_checks.telling, key=urgency):
        if row["verdict"] != "passed":
            findings.setdefault(row["run_id"], []).append(row)
    by_run = publications_of(moves, current.published_us)
    return Runs(
        *([ids[code] for code in order.tolist()], token[order], rows),
        *(np.bincount(moved, minlength=len(ids)), np.bincount(judged, minlength=len(ids)), has_moved_seal, is_judged),
        np.unique(np.stack((landed, files["seq_no"].to_numpy()), axis=1), axis=0),
        *(outcome.tolist(), error_code.tolist(), span_us),
        _clocks(((landed, files["landed_at"]), (moved, moves["moved_at"])), len(ids)),
        *(findings, {each.run_id: each for each in by_run}),
    )


def _codes(columns: Sequence[pa.ChunkedArray]) -> tuple[list[str], list[Ints]]:
    """The distinct texts of several columns, and of each column the places of its values among them."""
    places: dict[str, int] = {}
    codes = []
    for column in columns:
        of_column = [np.zeros(0, np.int64)]
        for chunk in column.chunks:
            encode_part = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            of_texts = [places.setdefault(text, len(places)) for text in encode_part.dictionary.to_pylist()]
            of_column.append(np.array(of_texts, np.int64)[encode_part.indices.to_numpy()])
        codes.append(np.concatenate(of_column))
    return list(places), codes


def _micros(times: pa.ChunkedArray) -> Ints:
    """Times as microseconds; _NEVER for null."""
    us: Ints = pc.fill_null(times.cast(pa.int64()), _NEVER).to_numpy()
    return us


def _clocks(times: Iterable[tuple[Ints, pa.ChunkedArray]], count: int) -> Ints:
    """The first and the last time of each run."""
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, _NEVER)
    for codes, column in times:
        us = _micros(column)
        has_time = us != _NEVER
        np.minimum.at(first, codes[has_time], us[has_time])
        np.maximum.at(last, codes[has_time], us[has_time])
    return np.stack((first, last), axis=1)


def whole_run(lake: HeldLake, source: Source, run: Run) -> WholeRun:
    """The run with its rows."""
    files = lake.of_source(FILES, source.name, where=pc.field("run_id") == run.run_id).to_pylist()
    results = results_of_run(lake, source, run.run_id)
    in_numbers = {each.name: getattr(run, each.name) for each in fields(Run)}
    return WholeRun(
        **in_numbers | {"findings": [result for result in results if result["verdict"] != "passed"]},
        results=results,
        files=sorted(files, key=lambda row: (row["landing"], row["path"] or "")),
        manifest=manifest_of_run(lake, source, run.run_id),
    )


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
