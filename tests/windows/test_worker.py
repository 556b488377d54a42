"""What a Python worker does with Arrow batches, without Spark: bounded by its budget, tidy on disk."""

from dataclasses import replace

import pyarrow as pa
import pytest

from spark_jobs.kernels.windows import Inputs, IntegerOverflow, ShapeMaker, Sliding, count, sum_, window_table
from spark_jobs.kernels.windows.slices import SLICES, HotKey
from spark_jobs.windows.hot_keys import SLICE_COLUMN
from spark_jobs.windows.worker import METRICS, OwnSlice, Partition, WindowsTask, metric_column

SHAPE = Sliding(50, False)
INPUTS = Inputs(["k"], "t", {"n": count(), "s": sum_("v")})
OUTPUTS = ["k", "window_start", "window_end", "n", "s"]


def batches(n, *, value=1):
    for begin in range(0, n, 5000):
        ids = range(begin, min(begin + 5000, n))
        columns = [[i % 3 for i in ids], [i * 7919 % n for i in ids], [value] * len(ids)]
        yield pa.record_batch([pa.array(column, pa.int64()) for column in columns], names=["c0", "c1", "c2"])


def partition(max_bytes):
    task = WindowsTask(ShapeMaker(SHAPE, INPUTS), INPUTS, ["v"], False, max_bytes, most_columns=5, with_metrics=True)
    return Partition(task, ["k", "t", "v"], [*OUTPUTS, *map(metric_column, METRICS)], grace=None)


@pytest.fixture
def local_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    return tmp_path


@pytest.mark.parametrize("max_bytes", [2**20, 2**27])
def test_a_worker_keeps_to_its_budget_and_leaves_no_file(local_folder, max_bytes):
    n, made = 50_000, []
    for batch in partition(max_bytes)(batches(n)):
        made.append(batch)
        assert any(local_folder.iterdir()) == (max_bytes == 2**20)
    assert not any(local_folder.iterdir())
    found = pa.Table.from_batches(made)
    whole = pa.Table.from_batches(batches(n)).rename_columns(["k", "t", "v"])
    assert found.select(OUTPUTS) == window_table(whole, SHAPE, INPUTS)[0]
    told = {name: found.column(metric_column(name)).to_pylist() for name in METRICS}
    assert sum(told["rows"]) == n
    assert (sum(told["flushed_runs"]) > 1) == (sum(told["flushed_bytes"]) > n * 20) == (max_bytes == 2**20)
    assert 0 < max(told["peak_bytes"]) <= max_bytes


def test_an_error_on_the_way_leaves_no_file_either(local_folder):
    with pytest.raises(IntegerOverflow):
        list(partition(2**20)(batches(50_000, value=2**62)))
    assert not any(local_folder.iterdir())


def test_windows_of_a_halo_which_hold_half_their_rows_are_not_summed():
    # the slice 0 .. 99 gets the rows up to 150: of the window 101 .. 151 all but one, without which its sum is 2**63
    hot = HotKey(0, 1, low=0, length=100, cells=2)
    inputs = replace(INPUTS, key=["k", SLICE_COLUMN], wanted=OwnSlice((hot,)))
    task = WindowsTask(ShapeMaker(SHAPE, inputs), inputs, ["v"], False, 2**27, most_columns=6)
    times, values = [20, 100, 130, 140, 150, 151], [1, -(2**62), 2**61, 2**61, 2**62, -1]
    rows = pa.table({"k": [1] * 6, SLICE_COLUMN: [SLICES] * 6, "t": times, "v": values})
    made = pa.concat_tables(task(iter([rows.slice(0, 5)])))
    whole = window_table(rows.drop_columns([SLICE_COLUMN]), SHAPE, INPUTS)[0].to_pylist()
    assert made.select(OUTPUTS).to_pylist() == [window for window in whole if window["window_start"] < 100]
    assert [window["s"] for window in whole if window["window_start"] == 101] == [2**63 - 1]


def test_a_worker_that_is_not_read_to_the_end_leaves_no_file(local_folder):
    made = partition(2**20)(batches(50_000))
    next(made)
    made.close()
    assert not any(local_folder.iterdir())
