"""What ten checks of a source file cost on a large drop: `python -m tests.benchmarks.checks [ROWS]`.

Those that quarantine are measured where records are read (one core, the kernel alone), those that Great Expectations
judges on the rows that landed, from the frame to the verdicts. A day of 400,000 rows takes the pipeline 85 s and more.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.config import Settings
from spark_jobs.gates.checks import assertions_about
from spark_jobs.gates.judging import Checked, judge
from spark_jobs.kernels.records import read_csv
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.sources import Source, load_source

SOURCE = Path(__file__).parents[2] / "dags" / "sources" / "flights.yml"
CHECKS: dict[str, dict[str, Any]] = {
    "delay": {"kind": "between", "column": "dep_delay", "min": -120, "max": 2000},
    "distance": {"kind": "between", "column": "distance", "min": 1, "max": 10_000},
    "air": {"kind": "between", "column": "air_time", "min": 10, "max": 1500},
    "hours": {"kind": "between", "column": "hour", "min": 0, "max": 23},
    "origins": {"kind": "in", "column": "origin", "values": ["EWR", "JFK", "LGA"]},
    "months": {"kind": "in", "column": "month", "values": list(range(1, 13))},
    "tails": {"kind": "matches", "column": "tailnum", "pattern": "N[0-9A-Z]+"},
    "dests": {"kind": "matches", "column": "dest", "pattern": "[A-Z]{3}"},
    "given": {"kind": "not_null", "column": "carrier"},
    "late": {"kind": "lateness", "max": "100 days"},
}


def _drop(source: Source, n_rows: int) -> bytes:
    """A CSV file of flights with so many rows."""
    rng = np.random.default_rng(7)
    minutes = rng.integers(0, 1440, n_rows)
    lines = [",".join(source.columns)]
    for i, minute in enumerate(minutes.tolist()):
        at = f"2013-01-01T{minute // 60:02}:{minute % 60:02}:00Z"
        cells = ["2013", "1", "1", "900", "905", str(i % 90), "1100", "1105", "-3", "UA", str(i), f"N{i % 4000}AA"]
        cells += ["JFK", "HNL", "300", "2000", "9", "5", at, at, at, at]
        lines.append(",".join(cells))
    return "\n".join(lines).encode()


def _seconds(work: Callable[[], Any], times: int = 3) -> float:
    """The least of some times: of a machine that others use the one that tells most."""
    spent = []
    for _ in range(times):
        begun = time.process_time()
        work()
        spent.append(time.process_time() - begun)
    return min(spent)


def main(n_rows: int) -> None:
    """Print both costs."""
    plain = load_source(SOURCE)

    def with_checks(treatment: str) -> Source:
        return plain.model_copy(update={"checks": _checks(treatment)})

    data = _drop(plain, n_rows)
    rows: list[pa.RecordBatch] = []

    def read(source: Source) -> None:
        rows[:] = read_csv([data], record_spec(source).of_drop(0))

    without, checked = (_seconds(lambda s=s: read(s)) for s in (plain, with_checks("quarantine")))
    print(f"reading {n_rows} rows: {without:.2f} s, with ten checks {checked:.2f} s (+{checked - without:.2f} s)")
    table = pa.Table.from_batches(rows)
    landed = table.select([f"c_{c}" for c in plain.columns]).rename_columns(list(plain.columns))
    landed = landed.append_column("late_by", pa.array(np.zeros(len(landed), np.int64)))
    landed = landed.append_column("row_id", pa.array(np.arange(len(landed))))
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home))
        held = assertions_about(settings, with_checks("fail"), "rows", plain.start_us)
        wanted = sorted({c for check in held for c in check.reads} | {"row_id"})
        about = Checked("bronze", "bronze.flights_chunks", ("row_id",), "flights", "r", "nobody")
        spent = _seconds(lambda: judge(settings, about, landed.select(wanted), held, {}, suite="rows checks"))
    print(f"ten checks judged by Great Expectations: {spent:.2f} s")


def _checks(treatment: str) -> dict[str, Any]:
    from pydantic import TypeAdapter

    from spark_jobs.sources import DataCheck

    adapter: TypeAdapter[Any] = TypeAdapter(DataCheck)
    return {name: adapter.validate_python({**check, "treatment": treatment}) for name, check in CHECKS.items()}


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
