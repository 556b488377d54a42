"""A drop that differs from those before it in one way is told by the one expectation about it; a year of both samples
gives no warning but for the one drop that is missing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.config import Settings
from spark_jobs.gates.drift import LEAST_HISTORY, WINDOW, compare_with_history, judge_drift, totals
from spark_jobs.landing.files import list_drop_files
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.worker import read_file
from spark_jobs.sample import prepare_sample
from spark_jobs.sources import load_source

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parents[2] / "dags" / "sources"


def metrics(seq_no: int, **changed: Any) -> dict[str, Any]:
    """A landing of 100 rows and a few more, of which some are rejected, late, or lack a value."""
    usual = {"files": 1, "bytes": 900, "rows": 100 + seq_no % 3, "rejects": 1, "duplicates": 0, "late_rows": 10}
    nulls = json.dumps(changed.pop("nulls", {"load": 5, "note": 50}))
    return {"seq_no": seq_no, **usual, "late_by_max": 7, "nulls": nulls, **changed}


FAULTS: dict[str, dict[str, Any]] = {
    "volume_low": {"rows": 49, "late_rows": 4, "rejects": 0, "nulls": {"load": 2, "note": 24}},
    "volume_high": {"rows": 205, "late_rows": 20, "rejects": 2, "nulls": {"load": 10, "note": 100}},
    "rejects_high": {"rejects": 20},
    "lateness_high": {"late_rows": 50},
    "nulls_high": {"nulls": {"load": 27, "note": 50}},
}


@pytest.mark.parametrize("name", [None, *FAULTS])
def test_what_drifts_is_told_by_the_expectation_about_it_alone(settings: Settings, name: str | None) -> None:
    usual = [metrics(n) for n in range(40)]
    known = totals([*usual, metrics(40, **(FAULTS[name] if name else {}))])
    told = judge_drift(
        settings, compare_with_history(known, [40]), source="shop", run_id="r", labels={40: "2024-02-10"}
    )
    assert {v.name: v.verdict for v in told} == {fault: "warned" if fault == name else "passed" for fault in FAULTS}
    for verdict in told:
        assert not verdict.stops
        if verdict.name == name:
            assert "2024-02-10" in verdict.observed
            assert str(WINDOW) in str(verdict.because)
            assert verdict.expected.startswith("at ")
            assert verdict.failing == 1


def test_a_drop_is_the_sum_of_what_its_landings_changed_and_is_compared_with_those_before_it() -> None:
    first = metrics(0, rows=100, nulls={"load": 4})
    then = metrics(
        0, files=0, rows=-60, rejects=3, late_rows=-10, late_by_max=0, bytes=-300, nulls={"load": -4, "b": 1}
    )
    of_drop = totals([first, then])[0]
    assert of_drop["nulls"] == {"load": 0, "b": 1}
    assert [of_drop[name] for name in ("files", "bytes", "rows", "rejects", "late_rows", "late_by_max")] == [
        1,
        600,
        40,
        4,
        0,
        7,
    ]
    known = totals(metrics(n, rows=1000 if n < 2 else 100) for n in range(WINDOW + 3))
    (volume,) = [row for row in compare_with_history(known, [WINDOW + 2]) if row["measure"] == "rows"]
    assert (volume["least"], volume["greatest"]) == (100, 100)
    assert compare_with_history(totals(metrics(n) for n in range(LEAST_HISTORY)), [LEAST_HISTORY - 1]) == []
    assert compare_with_history(known, [99]) == []


@pytest.mark.long
def test_a_year_of_both_samples_gives_no_warning_but_of_a_drop_without_a_file(tmp_path: Path) -> None:
    list(prepare_sample(tmp_path))
    for name in ("flights", "weather"):
        source = load_source(SOURCES / f"{name}.yml")
        spec, rows = record_spec(source), []
        for seq_no in range(365):
            counts, nulls = Counter[str](), Counter[str](dict.fromkeys(source.columns, 0))
            for file in list_drop_files(tmp_path, source, seq_no):
                for batch in read_file(file, source.landing.form, spec):
                    table = pa.Table.from_batches([batch])
                    good = table.filter(table["rule"].is_null())
                    times = good["event_time"].cast(pa.int64()).to_numpy()
                    late = int((times < source.drops.start(seq_no)).sum())
                    counts.update(rows=len(good), rejects=len(table) - len(good), late_rows=late)
                    nulls.update({c: good[f"c_{c}"].null_count for c in source.columns})
            rows.append(metrics(seq_no, **{"rows": 0, "rejects": 0, "late_rows": 0, **counts}, nulls=dict(nulls)))
        held = compare_with_history(totals(rows), range(365))
        assert len({row["drop"] for row in held}) == 365 - LEAST_HISTORY
        broken = [row for row in held if not row["lower"] <= row["value"] <= row["upper"]]
        # the weather of the year ends a day early: that drop has no file, and is told
        missing = [(364, "rows", 0.0)] if name == "weather" else []
        assert [(row["drop"], row["measure"], row["value"]) for row in broken] == missing, name
