"""What the buffer promises beside its answers: costs, memory, ownership, and what it takes in."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.engine.corrections import CodedCorrections, CorrectionBuffer, Updates, as_updates, valued
from spark_jobs.engine.corrections.stage import UpdateStage
from spark_jobs.errors import TidemarkError
from spark_jobs.model import Frontier
from tests.benchmarks.engine.corrections import PATTERNS, ROUTINES, catch_up, filled, random_updates
from tests.replay import main as replay

CASES = sorted((Path(__file__).parent.parent / "cases" / "corrections").glob("*.json"))


@pytest.mark.parametrize("cases", CASES, ids=lambda path: path.stem)
def test_case_files_replay_without_a_mismatch(cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(["corrections", str(cases)]) == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("routine", ROUTINES)
def test_catching_up_over_four_times_the_times_takes_four_times_the_work(pattern: str, routine: str) -> None:
    small, large = catch_up(pattern, routine, 512)[1], catch_up(pattern, routine, 2048)[1]
    assert 2 < large / small <= 6


def work_of_reads(buffer: CodedCorrections) -> list[int]:
    """Updates copied by each of three reads of fresh updates, with feedback between them."""
    random = np.random.default_rng(4)
    work = []
    for i in range(1, 4):
        buffer.insert(random_updates(random, 2_000, (i - 1) * 100, i * 100))
        upper = Frontier.at(i * 100)
        before = buffer.copied
        written = buffer.updates_before(upper)
        work.append(buffer.copied - before)
        buffer.insert_negated(written)
        buffer.advance_since(upper)
    return work


def test_a_read_does_the_same_work_beside_any_future() -> None:
    random = np.random.default_rng(5)
    beside = filled([random_updates(random, 20_000, 2**30, 2**50) for _ in range(5)])
    assert beside.n_updates > 90_000
    assert work_of_reads(beside) == pytest.approx(work_of_reads(CodedCorrections()), abs=2 * beside._stage.capacity)


def test_inserts_cost_a_logarithm_of_copies_each() -> None:
    random = np.random.default_rng(6)
    buffer = filled([random_updates(random, 341, 0, 2**40) for _ in range(1_000)])
    # log base 3 of 1,000 stage loads is 6.3; every level may copy an update up to 1 + 3 / 2 times
    assert buffer.copied / (341 * 1_000) < 2.5 * 6.3


def test_a_read_that_finds_nothing_new_copies_nothing() -> None:
    buffer = filled([random_updates(np.random.default_rng(7), 5_000, 0, 100)])
    buffer.updates_before(Frontier.at(50))
    before = buffer.copied
    buffer.updates_before(Frontier.at(50))
    assert buffer.copied == before


def test_a_read_leaves_the_buckets_well_formed_for_the_next() -> None:
    buffer = filled([random_updates(np.random.default_rng(8), 5_000, 0, 2**40)])
    for upper in (7, 1_000, 2**39 + 5):
        buffer.count_before(Frontier.at(upper))
        assert buffer._buckets.is_well_formed()
        assert buffer._buckets.lower() == upper


def test_the_boundary_only_advances() -> None:
    buffer = CodedCorrections()
    for upper, boundary in ((5, 5), (3, 5), (9, 9), (None, None), (12, None)):
        buffer.count_before(Frontier(upper))
        assert buffer.boundary == Frontier(boundary)


def test_a_chunk_keeps_no_more_memory_alive_than_a_chunk() -> None:
    buffer = CodedCorrections(chunk_bytes=24 * 1_000)
    buffer.count_before(Frontier.at(2**20))
    buffer.insert(random_updates(np.random.default_rng(9), 20_000, 0, 2**40))
    columns = [
        column
        for content in buffer._buckets.contents
        for chain in content.chains
        for chunk in chain.chunks
        for column in chunk
    ]
    assert len(columns) > 3 * 10
    assert all(column.base is None or column.base.size <= 1_000 for column in columns)


def test_the_stage_ships_whole_capacities_and_keeps_the_rest() -> None:
    stage = UpdateStage(24 * 10)
    rows = random_updates(np.random.default_rng(10), 25, 0, 100)
    assert stage.insert(rows.rows(0, 9)) is None
    shipped = stage.insert(rows.rows(9, 25))
    assert shipped is not None
    assert shipped.triples() == rows.triples()[:20]
    assert stage.flush().triples() == rows.triples()[20:]


def test_sizes_are_those_of_what_is_held() -> None:
    buffer = CorrectionBuffer()
    buffer.insert(["a", "b", "a"], [1, 2, 9], [1, 1, -1])
    assert (buffer.n_updates, buffer.held_bytes, buffer.distinct_values) == (3, 72, 2)
    buffer.advance_since(Frontier.at(9))
    buffer.consolidate_at_since()
    assert buffer.n_updates == 1
    buffer.advance_since(Frontier.empty())
    assert (buffer.n_updates, buffer.held_bytes, buffer.distinct_values) == (0, 0, 0)


@pytest.mark.parametrize("rows", [1, 400])
def test_the_buffer_keeps_its_own_copy_of_what_is_inserted(rows: int) -> None:
    columns = Updates(np.full(rows, 3, np.uint64), np.arange(rows), np.ones(rows, np.int64))
    buffer = CodedCorrections()
    buffer.insert(columns)
    for column in columns:
        column[:] = 77
    assert buffer.contents().triples() == [(row, 3, 1) for row in range(rows)]


def test_what_was_read_is_read_only_and_outlives_the_buffers_changes() -> None:
    buffer = filled([Updates(np.array([1, 2], np.uint64), np.array([5, 6]), np.array([1, 1]))])
    read = buffer.updates_before(Frontier.empty())
    with pytest.raises(ValueError, match="read-only"):
        read.diffs[0] = 9
    buffer.insert_negated(read)
    assert buffer.updates_before(Frontier.empty()).size == 0
    assert read.triples() == [(5, 1, 1), (6, 2, 1)]


@pytest.mark.parametrize(
    "data",
    [
        pa.array(["b", "a", "b"]),
        pa.chunked_array([["b"], ["a", "b"]]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        np.array(["b", "a", "b"]),
        ["b", "a", "b"],
    ],
    ids=["arrow", "chunked", "dictionary", "numpy", "list"],
)
def test_any_form_of_column_gives_the_same_updates(data: object) -> None:
    buffer = CorrectionBuffer()
    buffer.insert(data, pa.array([2**64 - 1, 4, 3], pa.uint64()), np.array([1, 2, 3], np.int8))
    read = buffer.updates_before(Frontier.empty())
    assert read.rows() == [("b", 3, 3), ("a", 4, 2), ("b", 2**64 - 1, 1)]
    assert read.to_arrow().to_pydict() == {"data": ["b", "a", "b"], "time": [3, 4, 2**64 - 1], "diff": [3, 2, 1]}


def test_bytes_numbers_and_dates_are_data_too() -> None:
    for values in ([b"y", b"x"], [9, -1], np.array(["2013-02-01", "2013-01-01"], "M8[D]").tolist()):
        buffer = CorrectionBuffer()
        buffer.insert(values, [1, 1], [1, 1])
        assert buffer.contents().data == sorted(values)


@pytest.mark.parametrize(
    "data",
    [
        pa.array(["a", None]),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
        pa.array([1.0, 2.0]),
        pa.array([1.0, 2.0]).dictionary_encode(),
        np.array([1.0, 2.0]),
        [0.0, -0.0],
        pa.array([[1], [2]]),
        [["unhashable"], ["a"]],
        ["a", 1],
        ["a", None],
    ],
    ids=str,
)
def test_data_without_exact_equality_and_order_is_refused(data: object) -> None:
    buffer = CorrectionBuffer()
    buffer.insert(["kept"], [3], [1])
    before = buffer.state()
    with pytest.raises(TidemarkError) as caught:
        buffer.insert(data, [1, 2], [1, 1])
    assert caught.value.code == "malformed_updates"
    assert caught.value.next_step
    assert buffer.state() == before
    assert buffer.contents().rows() == [("kept", 3, 1)]


def test_a_null_that_no_row_of_a_dictionary_has_is_no_null() -> None:
    buffer = CorrectionBuffer()
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["a", None]))
    buffer.insert(unused, [1, 2], [1, 1])
    assert buffer.contents().data == ["a", "a"]


@pytest.mark.parametrize(
    ("data", "times", "diffs"),
    [
        (np.array([1.5]), [1], [1]),
        ([2**63], [1], [1]),
        (np.array([2**63], np.uint64), [1], [1]),
        ([1], pa.array([None], pa.uint64()), [1]),
        ([1], np.array([[1]]), [1]),
        ([1, 2], [1], [1]),
        (["a"], [1], [1]),
    ],
)
def test_columns_that_are_not_integers_of_one_length_are_refused(
    data: np.ndarray | list[int | str], times: list[int] | pa.UInt64Array | np.ndarray, diffs: list[int]
) -> None:
    with pytest.raises(TidemarkError) as caught:
        as_updates(data, times, diffs)
    assert caught.value.code == "malformed_updates"
    assert caught.value.next_step


def test_integer_columns_of_any_width_become_updates() -> None:
    updates = as_updates(np.array([-1], np.int32), pa.array([7], pa.uint8()), [2])
    assert updates.triples() == [(-1, 7, 2)]
    with pytest.raises(TidemarkError, match="time_out_of_range"):
        as_updates([1], np.array([-1]), [1])


def test_values_that_have_cancelled_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valued, "FORGOTTEN_AT_ONCE", 10)
    buffer = CorrectionBuffer(stage_bytes=0)
    buffer.insert(["far", "kept"], [2**40, 500], [1, 1])
    for time in range(100):
        buffer.insert([f"row {time}"], [time], [1])
        read = buffer.updates_before(Frontier.at(time + 1))
        assert read.rows() == [(f"row {time}", time, 1)]
        buffer.insert_negated(*read)
        buffer.advance_since(Frontier.at(time + 1))
    assert buffer.distinct_values < 20
    assert buffer.contents().rows() == [("kept", 500, 1), ("far", 2**40, 1)]


def test_the_examples_in_the_docstrings_run() -> None:
    assert doctest.testmod(valued).failed == 0
