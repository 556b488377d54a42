"""Times that a rollback's rows hold: landing reads them back as the same instants, in every format."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.engine.deltas import EntityState, Status
from spark_jobs.engine.records import TEXT, ColumnSpec
from spark_jobs.engine.twins.record_values import Broken, read_value
from spark_jobs.errors import ParameterError
from spark_jobs.reads.file_times import written_time
from spark_jobs.reads.state_reads import RollbackNotExpressible, _Rows
from spark_jobs.sources import load_source
from spark_jobs.sources.columns import DeclaredColumn
from spark_jobs.storage.descriptions.times import micros

FORMATS = ["iso", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns", "%d.%m.%Y %H:%M", "%Y%m%d %H:%M:%S%z", "%Y-%m-%d %H"]
SECONDS = st.integers(0, 4_000_000_000)
TWICE = 1_761_438_600
"""2025-10-26 00:30 UTC, the first of two half past two in Berlin."""


@pytest.mark.parametrize("kind", ["timestamp", "date"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu"])
@given(
    form=st.sampled_from(FORMATS), second=SECONDS, unit=st.sampled_from([1, 60, 3600, 86400]),
    dst=st.sampled_from(["earliest", "latest", "refuse"]),
)  # fmt: skip
@example(form="%d.%m.%Y %H:%M", second=TWICE, unit=1, dst="refuse")
@example(form="%d.%m.%Y %H:%M", second=TWICE, unit=1, dst="latest")
def test_what_is_written_is_read_as_that_instant(
    kind: Any, zone: str, form: str, second: int, unit: int, dst: Any
) -> None:
    time_us = second // unit * unit * 1_000_000
    column = DeclaredColumn(type=kind, format=form, timezone=zone, dst=dst)
    spec = ColumnSpec("at", "at", kind, ("",), (form,), zone, dst)
    written = written_time(column, time_us)
    if written is not None:
        text = written.isoformat() if isinstance(written, dt.datetime) else str(written)
        assert read_value(spec, TEXT, text)[1] == time_us
    elif kind == "timestamp" and form.startswith("%Y%m"):
        pytest.fail("a format with seconds and an offset has words for every full second")


def test_a_clocks_hour_that_comes_twice_is_written_only_where_reading_chooses_it() -> None:
    def berlin(dst: Any) -> DeclaredColumn:
        return DeclaredColumn(type="timestamp", format="%Y-%m-%d %H:%M", timezone="Europe/Berlin", dst=dst)

    first, second = TWICE * 1_000_000, (TWICE + 3600) * 1_000_000
    assert [written_time(berlin("refuse"), t) for t in (first, second)] == [None, None]
    assert [written_time(berlin("latest"), t) for t in (first, second)] == [None, "2025-10-26 02:30"]
    with pytest.raises(Broken):
        spec = ColumnSpec("at", "at", "timestamp", ("",), ("%Y-%m-%d %H:%M",), "Europe/Berlin")
        read_value(spec, TEXT, "2025-10-26 02:30")


HEAD = """
source: meters
start: 2024-01-01
landing: {path: "meters/{date}/*", format: ndjson}
timelines: {at: at}
event_time: at
entity: meter
state: {mode: upsert, components: [load], delete_when: gone}
"""
AT = micros(dt.datetime(2024, 3, 1, 12, 30, tzinfo=dt.UTC))
NOW = EntityState(Status.LIVE, (2.0,), (True,), 1, 1, 1)
NOT_YET = EntityState(Status.LIVE, (None,), (False,), 1, 1, 1)


def rows(tmp_path: Path, columns: str, delta_id: str) -> _Rows:
    file = tmp_path / "meters.yml"
    shared = "meter: string, load: float, gone: bool"
    file.write_text(f"{HEAD}columns: {{{shared}, {columns}}}\ndelta_id: {delta_id}\n")
    return _Rows(load_source(file), "a", AT)


def test_rows_say_their_time_as_the_files_do_and_are_as_far_apart_as_those_can_tell(tmp_path: Path) -> None:
    made = rows(tmp_path, 'at: {type: timestamp, format: "%d.%m.%Y %H:%M"}, id: int', "[id]").back(NOW, NOT_YET)
    minute = 60_000_000
    assert made == [
        {"meter": "a", "at": "01.03.2024 12:30", "load": None, "gone": True, "id": AT},
        {"meter": "a", "at": "01.03.2024 12:31", "load": None, "gone": None, "id": AT + minute},
    ]


def test_a_time_that_the_files_cant_say_and_an_id_that_nothing_fills_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="format %d"):
        rows(tmp_path, 'at: {type: timestamp, format: "%d.%m.%Y %H"}, id: int', "[id]")
    with pytest.raises(RollbackNotExpressible, match="a bool"):
        rows(tmp_path, "at: timestamp, id: bool", "[id]").back(NOW, NOT_YET)
    assert rows(tmp_path, "at: timestamp, id: {type: timestamp, format: epoch_ms}", "[id]").back(NOW, NOT_YET)
