"""The gates' measures of real tables: a sound run has no fault, and each seeded fault is counted by its measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from expectations import GATES
from spark_jobs.config import Settings
from spark_jobs.definitions.definition import definitions
from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.engine.windows import Account
from spark_jobs.gates import measures
from spark_jobs.gates.measures import parts
from spark_jobs.jobs.request import Request
from spark_jobs.jobs.stage import run_stage
from spark_jobs.model import STAGES, Frontier
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source, load_source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DUPLICATES, LATE, QUARANTINE, STATE, chunks, updates
from spark_jobs.storage.lakes.frames import frame_of
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import frontiers
from spark_jobs.trace.frontiers import SourceFrontiers
from tests.empty_lake import empty
from tests.jobs.harness import DAY, SOURCE, START, Reading, write_drops, write_source
from tests.support.distribution import distribute_all

pytestmark = [pytest.mark.spark, pytest.mark.turns(together=True)]

TICK = timedelta(microseconds=1)
NIGHT = 24 * 60

DIFF_STATE = "state: {mode: diff, datatype: float64, components: [load, heat]}\n"

Row = dict[str, Any]


@dataclass(frozen=True)
class Staged:
    """A source whose first day is published, and whose second day has gone through all stages but the last."""

    spark: SparkSession
    source: Source
    tokens: dict[str, int]
    accounts: dict[str, Account]
    before: SourceFrontiers
    after: SourceFrontiers
    measured: list[measures.Measurement] = field(default_factory=list)
    """What the gates measured, the newest last."""

    @property
    def scope(self) -> Scope:
        return Scope(self.source, self.after, publication.load(SparkLake(self.spark), self.source))

    def bronze(self) -> dict[str, int]:
        return self._keep(measures.bronze(SparkLake(self.spark), self.source, landings=[self.tokens["land"]]))

    def trace(self, **changes: Any) -> dict[str, int]:
        arguments = {"before": self.before, "after": self.after, **changes}
        token, landings = self.tokens["seal"], [self.tokens["land"]]
        lake = SparkLake(self.spark)
        return self._keep(measures.trace(lake, self.source, token=token, landings=landings, **arguments))

    def silver(self) -> dict[str, int]:
        token = self.tokens["window"]
        found = definitions(self.source)
        lake = SparkLake(self.spark)
        return self._keep(measures.silver(lake, self.scope, found, token=token, accounts=self.accounts))

    def gold(self) -> dict[str, int]:
        return self._keep(measures.gold(SparkLake(self.spark), self.scope, token=self.tokens["compact"]))

    def _keep(self, measured: measures.Measurement) -> dict[str, int]:
        self.measured.append(measured)
        return measured.values

    def rows(self, table: Table, where: str) -> list[Row]:
        return [row.asDict() for row in self.spark.table(table.qualified).where(where).collect()]

    def append(self, table: Table, rows: list[Row]) -> None:
        frame = frame_of(SparkLake(self.spark).spark, table, rows)
        frame.write.format("delta").mode("append").saveAsTable(table.qualified)


READINGS = [
    Reading(0, 10, "a", 5),
    Reading(0, 65, "a", 7),
    Reading(0, NIGHT - 30, "a", 1),
    Reading(0, 200, "b", 2),
    Reading(1, NIGHT - 20, "a", 3),  # late
    Reading(1, NIGHT + 30, "a", 4),
    Reading(1, NIGHT + 45, "a", 4),
    Reading(1, NIGHT + 500, "b", 6),
]


def stages(spark: SparkSession, settings: Settings, day: int, *names: str) -> dict[str, Row]:
    """Run these stages of a day; returns their summaries."""
    lo = START + day * DAY
    given: dict[str, Any] = {
        "source": "meters",
        "lo": lo,
        "hi": lo + DAY,
        "run_id": f"day-{day}",
        "settings": settings,
        "spark": spark,
    }
    return {name: run_stage(name, **given, request=Request(pass_gap=True)) for name in names}


def tokens_of(summaries: dict[str, Row]) -> dict[str, int]:
    return {name: summary["token"] for name, summary in summaries.items()}


@pytest.fixture(scope="module")
def sound(spark: SparkSession, home: Settings) -> Iterator[Staged]:
    """One lake for all tests. Each leaves its faults; those in the trace come last: silver and gold compare with it."""
    empty(spark)
    settings = write_source(home)
    write_drops(settings, READINGS)
    source = load_source(settings.sources / "meters.yml")
    stages(spark, settings, 0, *STAGES)
    before = frontiers.load(SparkLake(spark), source)
    summaries = stages(spark, settings, 1, "land", "seal", "window", "compact")
    accounts = {name: Account(**found) for name, found in summaries["window"]["accounts"].items()}
    yield Staged(spark, source, tokens_of(summaries), accounts, before, frontiers.load(SparkLake(spark), source))
    empty(spark)


@pytest.fixture(scope="module")
def home(spark_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("home")
    return spark_settings.model_copy(update={"home": folder, "landing": folder / "landing"})


def faults(gate: str, before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What changed in the measures that the gate's suite bounds: a measure, and by how much."""
    bounded = {m for invariant in GATES[gate] for m in invariant.measures}
    assert bounded <= set(after), "every measure that the suite reads is measured"
    return {m: after[m] - before[m] for m in bounded if after[m] != before[m]}


def copies(row: Row, changes: list[Callable[[Row], Row]]) -> list[Row]:
    """The row once per change, changed."""
    return [{**row, **change(row)} for change in changes]


def test_a_late_row_is_due_and_recorded_in_each_definition_it_is_late_for(sound: Staged) -> None:
    measured = sound.silver()
    # minute 1420 of a drop that begins at 1440: late for windows of 60 minutes, within the gap of 90 for sessions
    assert (measured["late_rows_due"], measured["late_rows_recorded"]) == (1, 1)
    assert (measured["rows_due"], measured["rows_accounted"]) == (8, 8)
    assert (measured["rows_counted"], measured["rows_windowed"]) == (4, 4)


def test_many_tasks_measure_what_one_process_does(sound: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = (sound.bronze, sound.trace, sound.silver, sound.gold)
    here = [gate() for gate in gates]
    distribute_all(monkeypatch)
    monkeypatch.setattr(parts, "ROWS_A_TASK", 2)
    monkeypatch.setattr(parts, "ROWS_TOGETHER", 4)
    assert [gate() for gate in gates] == here


def test_faults_in_bronze_are_counted_by_their_measures(sound: Staged) -> None:
    clean = sound.bronze()
    (chunk,) = sound.rows(chunks(sound.source), f"landing = {sound.tokens['land']} AND entity = 'a'")
    assert chunk["rows"] == 3
    bad = copies(
        chunk,
        [
            lambda c: {"row_ids": c["row_ids"][::-1]},
            lambda c: {"seq_no": c["seq_no"] + 1},
            lambda c: {"c_load": c["c_load"][:2]},
            lambda c: {"event_max": c["event_max"] + TICK},
            lambda c: {"t_taken": c["t_taken"][::-1]},
            lambda c: {"entity": None},
            lambda c: {"event_times": [None, *c["event_times"][1:]], "event_min": c["event_times"][1]},
        ],
    )
    sound.append(chunks(sound.source), bad)
    landing = {"source": "meters", "landing": sound.tokens["land"]}
    sound.append(QUARANTINE, [landing])
    sound.append(DUPLICATES, [landing])
    assert faults("bronze", clean, sound.bronze()) == {
        "chunk_rows": 3 * len(bad),
        "quarantine_rows": 1,
        "duplicate_rows": 1,
        "repeated_row_ids": 3 * len(bad),
        "chunks_with_unordered_row_ids": 1,
        "chunks_with_foreign_row_ids": 1,
        "chunks_with_uneven_arrays": 1,
        "chunks_with_loose_bounds": 1,
        "chunks_falsely_sorted": 1,
        "chunks_without_entity": 1,
        "rows_without_event_time": 1,
    }
    broken = [("repeated_row_ids",), ("ledger_rows", "chunk_rows"), ("ledger_rejects", "quarantine_rows")]
    examples = sound.measured[-1].examples(broken)
    assert sorted(row["row_id"] for row in examples["repeated_row_ids"]) == chunk["row_ids"]
    assert examples["ledger_rows"] == [
        {"drop": "2024-01-02", "ledger_rows": 4, "chunk_rows": 22},
        {"drop": "2024-01-03", "ledger_rows": 0, "chunk_rows": 3},
    ]
    assert examples["ledger_rejects"] == [{"drop": None, "ledger_rejects": 0, "quarantine_rows": 1}]


def test_faults_in_silver_are_counted_by_their_measures(sound: Staged) -> None:
    clean = sound.silver()
    hourly, shifts = (definition.table() for definition in definitions(sound.source))
    own = f"token = {sound.tokens['window']} AND era = 'live' AND revision = 0"
    window, session = sound.rows(hourly, own)[0], sound.rows(shifts, own)[0]
    bad = copies(
        window,
        [
            lambda _: {},
            lambda w: {"meter": "x1", "window_end": w["window_end"] + TICK},
            lambda _: {"meter": "x2", "n": 0},
            lambda _: {"meter": None},
            lambda _: {"meter": "x3", "revision": 3},
            lambda w: {"meter": "x4", "known_from": w["known_from"] - TICK},
            lambda w: {
                "meter": "x5",
                "era": "closing",
                "known_from": w["known_from"] - DAY,
                "known_to": w["known_from"],
            },
        ],
    )
    sound.append(hourly, bad)
    sound.append(shifts, [{**session, "meter": "x1", "window_end": session["window_start"] - TICK}])
    sound.append(LATE, [{"source": "meters", "definition": "hourly", "token": sound.tokens["window"], "diff": 1}])
    assert faults("silver", clean, sound.silver()) == {
        "repeated_windows": 1,
        "windows_of_wrong_length": 2,
        "windows_without_rows": 1,
        "windows_without_key": 1,
        "changed_without_revision": 1,
        "changes_at_wrong_time": 1,
        "closings_of_nothing": 1,
        "late_rows_recorded": 1,
        "rows_windowed": session["n"],
    }
    pairs = [("late_rows_due", "late_rows_recorded"), ("rows_counted", "rows_windowed"), ("rows_due", "rows_accounted")]
    assert sound.measured[-1].examples(pairs) == {
        "late_rows_due": [{"definition": "hourly", "late_rows_due": 1, "late_rows_recorded": 2}],
        "rows_counted": [{"definition": "shifts", "rows_counted": 4, "rows_windowed": 4 + session["n"]}],
    }


def test_faults_in_gold_are_counted_by_their_measures(sound: Staged) -> None:
    clean = sound.gold()
    state = sound.rows(STATE, f"token = {sound.tokens['compact']} AND era = 'live' AND entity = 'a'")[0]
    revised = {"revision": 0}
    bad = copies(
        state,
        [
            lambda _: {},
            lambda s: {**revised, "entity": "x1", "seen": s["seen"][:1]},
            lambda _: {**revised, "entity": "x2", "delta_count": 0},
            lambda _: {**revised, "entity": "x3", "timestamp": START + 2 * DAY},
            lambda _: {"entity": "x4", "revision": 3},
            lambda s: {**revised, "entity": "x5", "known_from": s["known_from"] - TICK},
            lambda s: {
                "entity": "x6",
                "era": "closing",
                "known_from": s["known_from"] - DAY,
                "known_to": s["known_from"],
            },
        ],
    )
    sound.append(STATE, bad)
    assert faults("gold", clean, sound.gold()) == {
        "repeated_entities": 1,
        "states_of_wrong_width": 1,
        "states_without_deltas": 1,
        "states_beyond_reached": 1,
        "changed_without_revision": 1,
        "changes_at_wrong_time": 1,
        "closings_of_nothing": 1,
        "deltas_folded": 4 * state["delta_count"],
        "components_out_of_balance": 2,
    }
    apart = sound.measured[-1].examples([("deltas_accepted", "deltas_folded")])["deltas_accepted"]
    assert apart[:2] == [
        {"entity": "a", "deltas_accepted": 3, "deltas_folded": 9},
        {"entity": "x1", "deltas_accepted": 0, "deltas_folded": 6},
    ]


def test_faults_in_the_trace_are_counted_by_their_measures(sound: Staged) -> None:
    clean = sound.trace()
    good = sound.rows(updates(sound.source), f"token = {sound.tokens['seal']}")[0]
    bad = copies(
        good,
        [
            lambda u: {"row_id": 1, "time": START + DAY - TICK},
            lambda u: {"row_id": 2, "batch": "nowhere"},
            lambda u: {"row_id": 3, "diff": 0},
            lambda u: {"row_id": 4, "entity": None},
            lambda u: {"row_id": 5, "event_time": u["time"] + TICK},
            lambda _: {},
        ],
    )
    sound.append(updates(sound.source), bad)
    assert faults("trace", clean, sound.trace()) == {
        "updates_below_previous_seal": 1,
        "updates_outside_batch": 2,
        "updates_without_diff": 1,
        "updates_without_identity": 1,
        "updates_out_of_order": 1,
        "visible_before_event": 1,
        "repeated_updates": 1,
        "updates_added": 5,
        "batches_not_as_stated": 1,
    }
    examples = sound.measured[-1].examples([("rows_landed", "updates_added"), ("batches_not_as_stated",)])
    assert examples["rows_landed"] == [{"drop": "2024-01-02", "rows_landed": 4, "updates_added": 9}]
    assert [row["batch"] for row in examples["batches_not_as_stated"]] == [good["batch"]]


def test_faults_of_the_frontiers_are_measured(sound: Staged) -> None:
    state = sound.after.arrangement
    gap = replace(state.trace[0], description=replace(state.trace[0].description, upper=Frontier.at(7)))
    torn = replace(sound.after, arrangement=replace(state, trace=(gap, *state.trace[1:])))
    assert sound.trace()["broken_batch_chain"] == 0
    assert sound.trace(after=torn)["broken_batch_chain"] == 1
    back = sound.trace(before=sound.after, after=replace(sound.before, arrangement=ArrangementState()))
    assert back["seal_us"] < back["previous_seal_us"]
    assert back["reached_us"] > back["seal_us"]


def test_a_state_that_does_not_say_what_its_row_says_and_a_chain_of_two_ends_are_counted(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    settings = write_source(home, SOURCE.rpartition("state:")[0] + DIFF_STATE + "compaction: full\n")
    write_drops(settings, READINGS)
    source = load_source(settings.sources / "meters.yml")
    tokens = tokens_of(stages(lake, settings, 0, "land", "seal", "compact"))
    first = SourceFrontiers.start(source)
    ready = Staged(lake, source, tokens, {}, first, frontiers.load(SparkLake(lake), source))
    clean = ready.gold()
    assert clean["states_off_their_row"] == 0
    state = ready.rows(STATE, f"token = {tokens['compact']} AND era = 'live' AND entity = 'b'")[0]
    ready.append(STATE, [{**state, "entity": "x1", "floats": [state["floats"][0], None]}])
    assert faults("gold", clean, ready.gold()) == {"states_off_their_row": 1}
    segment = ready.rows(CHAINS, f"token = {tokens['compact']} AND era = 'live' AND entity = 'b'")[0]
    assert segment["deltas"] > 0
    ready.append(CHAINS, [{**segment, "start_row": 7, "known_from": segment["known_from"] - TICK}])
    assert faults("gold", clean, ready.gold()) == {
        "states_off_their_row": 1,
        "chains_without_end": 1,
        "segments_at_wrong_time": 1,
        "deltas_folded": segment["deltas"],
    }


def test_sums_balance_beside_the_deltas_that_chains_refuse(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    settings = write_source(home, f"{SOURCE}compaction: full\n")
    write_drops(settings, [*[Reading(0, 10 * i, "a", 2**62) for i in range(3)], Reading(0, 200, "b", 2)])
    source = load_source(settings.sources / "meters.yml")
    tokens = tokens_of(stages(lake, settings, 0, "land", "seal", "compact"))
    first = SourceFrontiers.start(source)
    ready = Staged(lake, source, tokens, {}, first, frontiers.load(SparkLake(lake), source))
    clean = ready.gold()
    assert (clean["segments_with_refused_deltas"], clean["components_out_of_balance"]) == (1, 0)
    state = ready.rows(STATE, f"token = {tokens['compact']} AND era = 'live' AND entity = 'b'")[0]
    ready.append(STATE, [{**state, "entity": "x1"}])
    assert faults("gold", clean, ready.gold()) == {"components_out_of_balance": 2}
