"""What a Python worker does with Arrow batches, without Spark: bounded by its budget, tidy on disk."""

import tempfile
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.engine.spark.windows import METRICS, WindowsTask
from spark_jobs.engine.spark.windows.worker import (
    MIN_END,
    STREAM_TIME,
    NewWindows,
    Partition,
    SkippedTask,
    metric_column,
)
from spark_jobs.engine.windows import (
    SLICE_COLUMN,
    SLICES,
    Hopping,
    HotKey,
    IntegerOverflow,
    Sessions,
    Sliding,
    Windowing,
    WindowInputs,
    WindowKind,
    collect,
    count,
    sum_,
    vector_sum,
)
from spark_jobs.engine.windows.skipped import skips_of
from tests.engine.whole_tables import skipped_table, window_table

SHAPE = Sliding(50, False)
WIDER = Sliding(1500, False)
INPUTS = WindowInputs(["k"], "t", {"n": count(), "s": sum_("v")})
OUTPUTS = ["k", "window_start", "window_end", "n", "s"]


def batches(n: int, *, value: int = 1) -> Iterator[pa.RecordBatch]:
    for begin in range(0, n, 5000):
        ids = range(begin, min(begin + 5000, n))
        columns = [[i % 3 for i in ids], [i * 7919 % n for i in ids], [value] * len(ids)]
        yield pa.record_batch([pa.array(column, pa.int64()) for column in columns], names=["c0", "c1", "c2"])


def with_metrics(kind: WindowKind, inputs: WindowInputs, required: list[str], max_bytes: int) -> NewWindows:
    windowing = Windowing.of(kind, inputs)
    return NewWindows(WindowsTask(windowing, inputs.time, max_bytes, most_columns=5, required=required), True)


def partition(max_bytes: int) -> Partition:
    task = with_metrics(SHAPE, INPUTS, ["v"], max_bytes)
    return Partition(task, ["k", "t", "v"], [*OUTPUTS, *map(metric_column, METRICS)], grace=None)


@pytest.fixture
def local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    return tmp_path


@pytest.mark.parametrize("max_bytes", [2**20, 2**27])
def test_a_worker_keeps_to_its_budget_and_leaves_no_file(local_folder: Path, max_bytes: int) -> None:
    n, made = 50_000, []
    for batch in partition(max_bytes)(batches(n)):
        made.append(batch)
        # the last row, which tells the metrics, comes when the rest is done
        is_last = batch.column("k").null_count > 0
        assert any(local_folder.iterdir()) == (max_bytes == 2**20 and not is_last)
    assert not any(local_folder.iterdir())
    found, told = found_and_told(made)
    whole = pa.Table.from_batches(batches(n)).rename_columns(["k", "t", "v"])
    assert found == window_table(whole, SHAPE, INPUTS)[0]
    assert told["rows"] == n
    assert (told["flushed_runs"] > 1) == (told["flushed_bytes"] > n * 20) == (max_bytes == 2**20)
    assert 0 < told["peak_bytes"] <= max_bytes


def found_and_told(made: list[pa.RecordBatch]) -> tuple[pa.Table, dict[str, Any]]:
    """The windows, and the metrics of the task's last row, which is no window."""
    table = pa.Table.from_batches(made)
    *windows, told = table.select(list(map(metric_column, METRICS))).to_pylist()
    assert all(value is None for row in windows for value in row.values())
    assert all(value is None for value in table.select(OUTPUTS).slice(table.num_rows - 1).to_pylist()[0].values())
    return table.select(OUTPUTS).slice(0, table.num_rows - 1), {name: told[metric_column(name)] for name in METRICS}


def test_a_task_without_windows_tells_what_it_flushed(local_folder: Path) -> None:
    cell = Hopping(50, 50)
    late = WindowInputs(INPUTS.key, INPUTS.time, INPUTS.aggregates, min_end=MIN_END)
    task = with_metrics(cell, late, [], 2**20)
    worker = Partition(task, ["k", "t", "v", STREAM_TIME], [*OUTPUTS, *map(metric_column, METRICS)], grace=0)
    n = 50_000
    given = (batch.append_column("c3", pa.array([10 * n] * batch.num_rows, pa.int64())) for batch in batches(n))
    found, told = found_and_told(list(worker(given)))
    assert found.num_rows == 0
    assert (told["rows"], told["flushed_runs"] > 1, told["flushed_bytes"] > n * 20) == (n, True, True)


WIDE = {"collected": collect("v", 500), "sums": vector_sum("w")}


@pytest.mark.slow
def test_windows_of_wide_values_keep_to_the_budget_by_their_real_bytes(local_folder: Path) -> None:
    # each window has a list of 500 numbers and a vector of 40: a hundred times what columns of 8 bytes are
    n, inputs = 10_000, WindowInputs(["k"], "t", WIDE)
    outputs = ["k", "window_start", "window_end", *WIDE]
    task = with_metrics(WIDER, inputs, ["v", "w"], 2**23)
    worker = Partition(task, ["k", "t", "v", "w"], [*outputs, *map(metric_column, METRICS)], grace=None)
    vector = pa.array([[1.0] * 40] * 5000, pa.list_(pa.float64()))
    given = [batch.append_column("c3", vector) for batch in batches(n)]
    made = list(worker(iter(given)))
    assert max(batch.nbytes for batch in made) <= 2**23 / 6
    assert made[-1].column(metric_column("peak_bytes"))[-1].as_py() <= 2**23
    found = pa.Table.from_batches(made).select(outputs)
    whole = pa.Table.from_batches(given).rename_columns(["k", "t", "v", "w"])
    assert found.slice(0, found.num_rows - 1) == window_table(whole, WIDER, inputs)[0]


def test_one_window_larger_than_the_budget_is_exact_and_tells_by_how_much(local_folder: Path) -> None:
    n, session = 50_000, Sessions(10)
    task = with_metrics(session, INPUTS, [], 2**20)
    worker = Partition(task, ["k", "t", "v"], [*OUTPUTS, *map(metric_column, METRICS)], grace=None)
    found, told = found_and_told(list(worker(batches(n))))
    assert found.column("n").to_pylist() == [16667, 16667, 16666]
    assert found.column("s").to_pylist() == [16667, 16667, 16666]
    assert told["peak_bytes"] > 2**20


def test_without_a_folder_of_spark_rows_wait_in_that_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "system"))
    (tmp_path / "system").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    made = partition(2**20)(batches(50_000))
    next(made)
    assert any((tmp_path / "system").iterdir())
    assert not any((tmp_path / "here").iterdir())
    assert isinstance(made, Generator)
    made.close()


def test_an_error_on_the_way_leaves_no_file_either(local_folder: Path) -> None:
    with pytest.raises(IntegerOverflow):
        list(partition(2**20)(batches(50_000, value=2**62)))
    assert not any(local_folder.iterdir())


def test_windows_of_a_halo_which_hold_half_their_rows_are_not_summed() -> None:
    # the slice 0 .. 99 gets the rows up to 150: of the window 101 .. 151 all but one, without which its sum is 2**63
    hot = HotKey(0, 1, low=0, length=100, cells=2)
    inputs = replace(INPUTS, key=["k", SLICE_COLUMN])
    task = NewWindows(WindowsTask(Windowing.of(SHAPE, inputs, (hot,)), "t", 2**27, most_columns=6, required=["v"]))
    times, values = [20, 100, 130, 140, 150, 151], [1, -(2**62), 2**61, 2**61, 2**62, -1]
    rows = pa.table({"k": [1] * 6, SLICE_COLUMN: [SLICES] * 6, "t": times, "v": values})
    made = pa.concat_tables(task(iter([rows.slice(0, 5)])))
    whole = window_table(rows.drop_columns([SLICE_COLUMN]), SHAPE, INPUTS)[0].to_pylist()
    assert made.select(OUTPUTS).to_pylist() == [window for window in whole if window["window_start"] < 100]
    assert [window["s"] for window in whole if window["window_start"] == 101] == [2**63 - 1]


def test_a_worker_that_is_not_read_to_the_end_leaves_no_file(local_folder: Path) -> None:
    made = partition(2**20)(batches(50_000))
    next(made)
    assert isinstance(made, Generator)
    made.close()
    assert not any(local_folder.iterdir())


LATE = WindowInputs(["k"], "t", {"n": count()}, min_end=MIN_END)


@pytest.mark.parametrize("shape", [SHAPE, Hopping(50, 10), Sessions(20)], ids=["sliding", "hopping", "session"])
def test_what_does_not_count_is_told_within_the_budget(local_folder: Path, shape: Sliding | Hopping | Sessions) -> None:
    n, step = 30_000, []
    task = SkippedTask(skips_of(shape, LATE), LATE, 2**20, most_columns=6)
    columns = ["k", "t", "window_start", "window_end", "reason"]

    def given() -> Iterator[pa.RecordBatch]:
        for batch in batches(n):
            times = batch.column(1)
            reached = pa.array([t + 30 + t % 40 if t % 5 == 0 else t for t in times.to_pylist()], pa.int64())
            key = pa.array(
                [
                    None if t % 1000 == 0 else k
                    for k, t in zip(batch.column(0).to_pylist(), times.to_pylist(), strict=True)
                ],
                pa.int64(),
            )
            yield pa.record_batch([key, times, reached], names=["c0", "c1", "c2"])

    for batch in Partition(task, ["k", "t", STREAM_TIME], columns, grace=0)(given()):
        step.append(batch)
        if shape.halo is not None and batch.column("reason")[0].as_py() != "null_key":
            assert any(local_folder.iterdir()), "rows wait on disk"
    assert max(batch.num_rows for batch in step) < n / 4
    whole = pa.Table.from_batches(given()).rename_columns(["k", "t", MIN_END])
    order = [(name, "ascending") for name in columns]
    expected = skipped_table(whole, shape, LATE).select(columns)
    assert expected.num_rows > n / 5
    assert pa.Table.from_batches(step).sort_by(order) == expected.sort_by(order).combine_chunks()
