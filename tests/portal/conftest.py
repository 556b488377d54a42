"""A lake whose texts try to be markup, with late rows, rejects, a restated window, a failed check and a mart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from expectations import GATES
from spark_jobs.config import Settings
from spark_jobs.gates import build_data_docs, run_gate
from spark_jobs.lifecycle.source_parts import hold_source
from spark_jobs.sources import create_environment, find_source
from spark_jobs.storage.coordination.audit_notes import note_audit
from spark_jobs.storage.names.shown_marts import ShownMarts, note_shown
from spark_jobs.trace import frontiers
from tests.jobs.harness import Reading, run, write_lines, write_source
from tests.support.file_session import FileSession, open_file_session

EVIL = "<script>alert('x')</script> & \"more\""
FILE = "<script>alert(1)<&script>.ndjson"
NIGHT = 24 * 60
MANIFEST = {
    "nodes": {
        "model.tidemark.meter_hours": {
            "resource_type": "model",
            "name": "meter_hours",
            "description": f"Loads per hour. {EVIL}",
            "columns": {"meter": {"description": "The meter."}, "starts": {"description": None}},
            "config": {"follows": "meters"},
            "depends_on": {"nodes": ["source.tidemark.silver.hourly"]},
        },
        "test.tidemark.grain": {
            "resource_type": "test",
            "name": "grain_meter_hours",
            "attached_node": "model.tidemark.meter_hours",
            "depends_on": {"nodes": ["model.tidemark.meter_hours"]},
            "test_metadata": {"name": "grain", "kwargs": {"columns": ["meter", "starts"]}},
            "raw_code": f"select '{EVIL}'",
        },
        "test.tidemark.no_load_is_lost": {
            "resource_type": "test",
            "name": "no_load_is_lost",
            "depends_on": {"nodes": ["model.tidemark.meter_hours"]},
            "raw_code": "select 1",
        },
    }
}
"""What dbt writes of a model, its test and a query that tests it, as far as the portal reads it."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("home")
    home = write_source(Settings(home=folder, landing=folder / "landing"))
    with open_file_session(Path(home.lake)) as session:
        fill(session, home)
        yield home


def fill(session: FileSession, home: Settings) -> None:
    """Run the drops, and leave a failed check, Data Docs and a mart."""
    first = [Reading(0, 10, EVIL, 5), Reading(0, 20, "a", 7), Reading(0, NIGHT - 30, "a", 1)]
    write_lines(home, 0, [reading.line() for reading in first], FILE)
    run(session, home, 0, 0)
    late = [Reading(1, NIGHT - 20, "a", 3), Reading(1, NIGHT + 30, "b", 4)]
    write_lines(home, 1, [*(reading.line() for reading in late), f'{{"id": "{EVIL[:8]}", "meter": 3'], FILE)
    run(session, home, 1, 1)
    run(session, home, 3, 3)
    _failed_check(home)
    _data_docs(home)
    with hold_source(home, session.lake, "meters") as lease:
        source = find_source(home.sources, "meters")
        current = frontiers.load(session.lake, source)
        frontiers.commit(session.lake, source, lease.fence, "maintain", current)
    _audit_and_erasure(home)
    environment = create_environment(home.home, "dev", home.sources)
    with (environment.folder / "meters.yml").open("a") as file:
        file.write("# changed\n")
    _mart(home)
    note_audit(home.home, "meters", "test-3-3", 2)


def sound(gate: str) -> dict[str, int]:
    """Measures of a stage without a fault."""
    return {m: 0 if i.bound == "none" else 7 for i in GATES[gate] for m in i.measures}


def _data_docs(home: Settings) -> None:
    """Data Docs of the first run. A run keeps results for them on a lake of Spark's alone."""
    run_gate("bronze", sound("bronze"), settings=home, source="meters", run_id="test-0-0")
    build_data_docs(home)


def _failed_check(home: Settings) -> None:
    """A check of the last run that failed, as the gates record it."""
    failed = {
        "source": "meters", "token": 10**6, "run_id": "test-3-3", "gate": "silver", "kind": "check",
        "relation": "silver.hourly", "name": "total_is_small", "expectation": f"Totals are small. {EVIL}",
        "severity": "critical", "treatment": "fail", "verdict": "failed", "observed": EVIL, "expected": "<= 3",
        "failing": 2, "sample": json.dumps([{"meter": EVIL, "total": 5}, {"meter": "a", "n": 7}]),
        "because": None, "on_failure": "Mend the file.",
    }  # fmt: skip
    append_row(home, "quality.results", {**failed, "recorded_at": datetime(2024, 1, 5, tzinfo=UTC)})


def _audit_and_erasure(home: Settings) -> None:
    """An audit after all runs, and an erasure that was interrupted."""
    at = datetime(2024, 1, 6, tzinfo=UTC)
    audited = {
        "source": "meters", "token": 10**6 + 1, "run_id": "audit-1", "gate": "audit", "kind": "invariant",
        "name": "rows", "expectation": "All rows are there.", "verdict": "failed", "observed": "1", "recorded_at": at,
    }  # fmt: skip
    append_row(home, "quality.results", audited)
    erasure = {
        "source": "meters", "erasure": "erasure-1", "entity_hash": "0", "salt": "0", "step": "begun", "number": 1,
        "because": EVIL, "erased_by": "ann", "recorded_at": at,
    }  # fmt: skip
    append_row(home, "bronze.erasures", erasure)


def append_row(home: Settings, table: str, row: dict[str, object]) -> None:
    """Add a row to a table, which need not be there."""
    place = f"{home.lake}/{table.replace('.', '.db/')}"
    if DeltaTable.is_deltatable(place):
        schema = pa.schema(DeltaTable(place).schema().to_arrow())
        write_deltalake(place, pa.Table.from_pylist([row], schema=schema), mode="append")
    else:
        text = {name: pa.string() for name, value in row.items() if value is None}
        schema = pa.schema([(n, text.get(n) or pa.scalar(v).type) for n, v in row.items()])
        write_deltalake(place, pa.Table.from_pylist([row], schema=schema), partition_by=["source"])


def _mart(home: Settings) -> None:
    """A mart as a build of dbt leaves it: its table, and what dbt says of it."""
    history = DeltaTable(f"{home.lake}/silver.db/hourly_history").to_pyarrow_table()
    live = history.filter(pa.compute.equal(history.column("era"), "live"))
    rows = live.select(["meter", "window_start", "total"]).rename_columns(["meter", "starts", "total"])
    place = f"{home.lake}/marts_staging.db/meter_hours"
    write_deltalake(place, rows, mode="overwrite")
    note_shown(home.home, "meters", ShownMarts(1, "", {"meter_hours": DeltaTable(place).version()}))
    # what a build that failed its tests has left is not shown
    write_deltalake(place, rows.slice(0, 0), mode="overwrite")
    target = home.home / "dbt" / "target"
    target.mkdir(parents=True)
    (target / "manifest.json").write_text(json.dumps(MANIFEST))
    found = {
        "source": "meters", "token": 10**6 - 1, "run_id": "test-1-1", "gate": "marts", "kind": "mart_test",
        "relation": "marts.meter_hours", "name": "grain_meter_hours", "expectation": "grain_meter_hours finds no row",
        "severity": "critical", "treatment": "fail", "verdict": "warned", "observed": EVIL, "expected": "0 rows",
        "failing": 2, "recorded_at": datetime(2024, 1, 5, tzinfo=UTC),
    }  # fmt: skip
    append_row(home, "quality.results", found)


@pytest.fixture(scope="module")
def site(home: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The portal's files."""
    from spark_jobs.portal.site import write_site

    folder = tmp_path_factory.mktemp("site")
    assert write_site(home, folder) == len([*folder.rglob("*.html")]) - len([*(folder / "docs").rglob("*.html")])
    return folder
