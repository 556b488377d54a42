"""Listing and reading the files of a drop without Spark: rows or one rejection each, and links lead nowhere else."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard

from spark_jobs.landing import worker
from spark_jobs.landing.blocks import FILE, _read_one
from spark_jobs.landing.drift import ColumnsChangedError, Drift, check_drift
from spark_jobs.landing.files import LandingFile, LocalDirectory, drops_with_files, list_drop_files
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.worker import read_file
from spark_jobs.sources import Source, first_row_id, parse_source, row_id

LINES = [f'{{"who": "w{n}", "at": "2024-01-01T00:00:{n % 60:02}Z", "n": {n}}}' for n in range(500)]
CONTENT = "\n".join(LINES).encode()


def source_of(**landing: str | int) -> Source:
    document = {
        "source": "shop",
        "start": "2024-01-01",
        "landing": {"path": "shop/{date}/*", "format": "ndjson"} | landing,
        "columns": {"who": "string", "at": "timestamp", "n": "int"},
        "timelines": ["at"],
        "event_time": "at",
        "entity": "who",
    }
    return parse_source(yaml.safe_dump(document), file="shop.yml")


SHOP = source_of()


@pytest.fixture
def drop(tmp_path: Path) -> Path:
    folder = tmp_path / "landing" / "shop" / "2024-01-01"
    folder.mkdir(parents=True)
    return folder


def listed(drop: Path, source: Source = SHOP) -> list[LandingFile]:
    return list_drop_files(drop.parents[1], source, 0)


def read(file: LandingFile, source: Source = SHOP) -> pa.Table:
    return pa.Table.from_batches(list(read_file(file, source.landing.form, record_spec(source))))


def rejection(file: LandingFile, source: Source = SHOP) -> str:
    (row,) = read(file, source).to_pylist()
    assert row["line"] is None
    assert row["row_id"] is None
    assert row["reason"].startswith("expected ")
    assert row["file"] == file.path
    return row["rule"]


def test_files_come_by_name_and_unfinished_ones_are_none(drop: Path) -> None:
    for name in ("b.json", "a.json", ".a.json.tmp", "_SUCCESS", "é.json"):
        (drop / name).write_bytes(CONTENT)
    files = listed(drop)
    paths = [f"shop/2024-01-01/{name}.json" for name in "abé"]
    assert [(file.path, file.first_row_id) for file in files] == [(path, first_row_id(0, path)) for path in paths]
    assert {file.checksum for file in files} == {files[0].checksum}
    assert files[0].size == len(CONTENT)


@pytest.mark.parametrize(
    "path", ["shop/{date}/*", "shop/{date}/data/*.json", "{date}.json", "shop/{date}*", "shop/x-{date}/?.json"]
)
def test_drops_with_files_are_those_of_which_a_file_is_listed_and_no_folder_is_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    source = source_of(path=path)
    names = {3: "a.json", 5: "_SUCCESS", 6: "b.json", 40: "a.json"}
    for seq_no, name in names.items():
        place = tmp_path / source.drops.path(path, seq_no).replace("*.json", name).replace("?.json", name)
        place = place.with_name(place.name.replace("*", name))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(CONTENT)
    (tmp_path / "shop").mkdir(exist_ok=True)
    # neither is a folder of files, and both are listed, to be refused
    (tmp_path / source.drops.path("shop/{date}", 8)).write_text("")
    (tmp_path / source.drops.path("shop/{date}", 9)).symlink_to(tmp_path.parent)
    expected = {n for n in range(60) if list_drop_files(tmp_path, source, n)}
    asked: list[str] = []
    entries = LocalDirectory.entries

    def noted(self: LocalDirectory, name: str) -> Any:
        asked.append(name)
        return entries(self, name)

    monkeypatch.setattr(LocalDirectory, "entries", noted)
    assert drops_with_files(tmp_path, source, range(60)) == expected
    assert expected & set(names)
    assert len(asked) == len(set(asked)) <= 13
    assert drops_with_files(tmp_path / "nowhere", source, range(60)) == set()


def test_a_pattern_picks_the_files_of_the_source(drop: Path) -> None:
    for name in ("2024-01-01.csv", "2024-01-02.csv", "2024-01-01.txt"):
        (drop.parent / name).write_text("who\n")
    assert [file.path for file in listed(drop, source_of(path="shop/{date}.csv"))] == ["shop/2024-01-01.csv"]


def test_row_ids_follow_from_drop_path_and_line_alone(drop: Path) -> None:
    (drop / "a.json").write_bytes(b"\n" + CONTENT)
    alone = read(listed(drop)[0])
    first = first_row_id(0, "shop/2024-01-01/a.json")
    assert alone["line"].to_pylist()[:2] == [2, 3]
    assert alone["row_id"].to_pylist()[:2] == [row_id(first, 2), row_id(first, 3)]
    for name in ("0.json", "b.json"):
        (drop / name).write_bytes(CONTENT)
    assert read(listed(drop)[1])["row_id"].equals(alone["row_id"])


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
def test_compression_is_recognised_by_content(drop: Path, compress: Callable[[bytes], bytes]) -> None:
    (drop / "a.json").write_bytes(compress(CONTENT))
    table = read(listed(drop)[0])
    assert table.num_rows == 500
    assert table["rule"].null_count == 500
    assert table["c_n"].to_pylist() == list(range(500))


def test_gzip_members_one_after_another_are_one_file(drop: Path) -> None:
    (drop / "a.json").write_bytes(gzip.compress(CONTENT + b"\n") + gzip.compress(CONTENT))
    assert read(listed(drop)[0]).num_rows == 1_000


def test_zeros_behind_a_gzip_member_are_padding_and_other_bytes_are_none(drop: Path) -> None:
    (drop / "a.json").write_bytes(gzip.compress(CONTENT) + bytes(512))
    (drop / "b.json").write_bytes(gzip.compress(CONTENT) + b"more")
    padded, followed = listed(drop)
    assert read(padded).num_rows == 500
    assert rejection(followed) == "unreadable_file"


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_truncated_file_gives_no_row_but_its_rejection(drop: Path, compress: Callable[[bytes], bytes]) -> None:
    noise = "".join(f'{{"who": "{os.urandom(300).hex()}", "at": "2024-01-01", "n": 1}}\n' for _ in range(200)).encode()
    (drop / "a.json").write_bytes(compress(noise)[:-9])
    assert rejection(listed(drop)[0]) == "truncated_file"


def test_bytes_that_only_begin_like_gzip_are_rejected_whole(drop: Path) -> None:
    (drop / "a.json").write_bytes(b"\x1f\x8b" + CONTENT)
    assert rejection(listed(drop)[0]) == "unreadable_file"


def test_a_bomb_of_one_line_is_one_reject_in_bounded_memory(drop: Path) -> None:
    (drop / "a.json").write_bytes(gzip.compress(b"y" * (64 << 20) + b"\n" + LINES[0].encode()))
    rows = read(listed(drop)[0]).to_pylist()
    assert [(row["line"], row["rule"]) for row in rows] == [(1, "too_long"), (2, None)]
    assert len(rows[0]["raw"]) == SHOP.landing.max_record_bytes


@pytest.mark.turns
@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_a_flood_of_rejects_leaves_the_first_and_a_range_of_lines(drop: Path, form: str) -> None:
    good = {"csv": "ann,2024-01-01,1", "ndjson": '{"who": "ann", "at": "2024-01-01", "n": 1}'}[form]
    lines = ["who,at,n", *["x"] * 1_000_000, good, *["x"] * 1_000_000, good]
    (drop / "a").write_bytes(gzip.compress("\n".join(lines).encode()))
    source = source_of(path="shop/{date}/*", format=form, max_rejects=100)
    rejects = 2_000_000 + (form == "ndjson")  # the header too
    rows = read(listed(drop, source)[0], source).to_pylist()
    assert [row["line"] for row in rows if row["rule"] is None] == [1_000_002, 2_000_003]
    *singles, last = [row for row in rows if row["rule"]]
    assert [row["line"] for row in singles] == list(range(1 + (form == "csv"), 101 + (form == "csv")))
    assert {row["records"] for row in singles} == {None}
    assert (last["line"], last["last_line"], last["raw"]) == (singles[-1]["line"] + 1, 2_000_002, "x")
    assert last["records"] == rejects - 100
    assert last["reason"] == singles[-1]["reason"]


def test_a_range_of_rejects_is_counted_with_its_last_line(drop: Path) -> None:
    (drop / "a").write_text("x\n" * 50)
    source = source_of(path="shop/{date}/*", max_rejects=10)
    made = list(_read_one(listed(drop, source)[0], "ndjson", record_spec(source), [], 1))
    (counts,) = pa.Table.from_batches(made).filter(pc.field("kind") == FILE).to_pylist()
    assert (counts["rows"], counts["rejects"], counts["whole"], counts["lines"]) == (0, 50, 0, 50)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_file_that_expands_too_far_is_rejected_whole(
    drop: Path, compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.landing.worker.EXPANDED_BYTES", 1 << 20)
    content = b"\n".join([LINES[0].encode()] * 200_000)
    (drop / "a.json").write_bytes(compress(content))
    assert rejection(listed(drop)[0]) == "expands_too_far"
    times = len(content) // (drop / "a.json").stat().st_size + 1
    assert read(listed(drop)[0], source_of(max_expansion=times)).num_rows == 200_000


def test_a_parquet_file_that_expands_too_far_is_rejected_whole(drop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.landing.worker.EXPANDED_BYTES", 1 << 20)
    rows = pa.table({"who": ["ann"] * 1_000_000, "at": ["2024-01-01"] * 1_000_000, "n": [1] * 1_000_000})
    pq.write_table(rows, drop / "a.parquet")
    source = source_of(format="parquet")
    assert rejection(listed(drop, source)[0], source) == "expands_too_far"


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet"])
def test_a_file_of_too_many_lines_is_rejected_whole(drop: Path, form: str) -> None:
    values = {"who": ["ann"] * 4, "at": ["2024-01-01"] * 4, "n": [1] * 4}
    if form == "parquet":
        pq.write_table(pa.table(values), drop / "a")
    else:
        header = {"csv": "who,at,n\n", "ndjson": ""}[form]
        (drop / "a").write_text(header + ("ann,2024-01-01,1\n" if form == "csv" else LINES[0] + "\n") * 4)
    most = 4 + (form == "csv")
    kept, refused = (source_of(path="shop/{date}/*", format=form, max_lines=n) for n in (most, most - 1))
    assert read(listed(drop, kept)[0], kept).num_rows == 4
    assert rejection(listed(drop, refused)[0], refused) == "too_many_lines"


def test_a_file_that_changes_after_the_listing_is_rejected_whole(drop: Path) -> None:
    (drop / "a.json").write_bytes(CONTENT)
    (file,) = listed(drop)
    with (drop / "a.json").open("ab") as grown:
        grown.write(b"\n{}")
    assert rejection(file) == "changed_file"


def test_other_bytes_of_the_same_size_and_time_are_found_by_checksum(drop: Path) -> None:
    (drop / "a.json").write_bytes(CONTENT)
    (file,) = listed(drop)
    (drop / "a.json").write_bytes(CONTENT.replace(b"w7", b"v7"))
    os.utime(drop / "a.json", ns=(file.modified_ns, file.modified_ns))
    assert rejection(file) == "changed_file"


def test_a_file_that_went_after_the_listing_is_rejected_whole(drop: Path) -> None:
    (drop / "a.json").write_bytes(CONTENT)
    (file,) = listed(drop)
    (drop / "a.json").unlink()
    assert rejection(file) == "unreadable_file"


def test_links_are_followed_inside_the_landing_directory_only(drop: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(CONTENT)
    (drop.parent / "inside").write_bytes(CONTENT)
    (drop / "a").symlink_to(tmp_path / "secret")
    (drop / "b").symlink_to(drop.parent / "inside")
    (drop / "c").symlink_to("../../../secret")
    (drop / "d").symlink_to(drop / "nothing")
    (drop / "e").symlink_to(drop / "e")
    a, b, c, d, e = listed(drop)
    assert [rejection(file) for file in (a, c)] == ["outside_landing", "outside_landing"]
    assert [rejection(file) for file in (d, e)] == ["unreadable_file", "unreadable_file"]
    assert read(b).num_rows == 500


def test_a_file_swapped_for_a_link_after_the_listing_is_not_followed(drop: Path, tmp_path: Path) -> None:
    (drop / "a").write_bytes(CONTENT)
    (file,) = listed(drop)
    (tmp_path / "secret").write_bytes(CONTENT)
    os.utime(tmp_path / "secret", ns=(file.modified_ns, file.modified_ns))
    (drop / "a").unlink()
    (drop / "a").symlink_to(tmp_path / "secret")
    assert rejection(file) == "unreadable_file"


def test_a_drop_that_leads_out_of_the_landing_directory_is_one_rejection(drop: Path, tmp_path: Path) -> None:
    drop.rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.json").write_bytes(CONTENT)
    drop.symlink_to(tmp_path / "elsewhere")
    assert [rejection(file) for file in listed(drop)] == ["outside_landing"]


def test_a_file_where_the_drop_should_be_is_one_rejection(drop: Path) -> None:
    drop.rmdir()
    drop.write_bytes(CONTENT)
    (file,) = listed(drop)
    assert file.path == "shop/2024-01-01"
    assert rejection(file) == "not_a_directory"


def test_what_is_no_file_or_has_no_printable_name_is_one_rejection_each(drop: Path) -> None:
    (drop / "a.json").mkdir()
    os.mkfifo(drop / "b.json")
    (drop / "c\n.json").write_bytes(CONTENT)
    Path(os.fsdecode(os.fsencode(drop) + b"/d\xff.json")).write_bytes(CONTENT)
    files = listed(drop)
    assert [rejection(file) for file in files] == ["not_a_file", "not_a_file", "bad_name", "bad_name"]
    assert files[3].path.endswith("d\\xff.json")
    assert [file.checksum for file in files] == [file.checksum for file in listed(drop)]


def test_rows_that_wait_on_disk_come_back_in_order(drop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "WAITING_BYTES", 10_000)
    monkeypatch.setattr(worker, "BLOCK_BYTES", 2_000)
    (drop / "a.json").write_bytes(CONTENT)
    assert read(listed(drop)[0])["line"].to_pylist() == list(range(1, 501))


def test_parquet_files_are_read_and_truncated_ones_rejected(drop: Path) -> None:
    source = source_of(format="parquet")
    pq.write_table(pa.table({"who": ["w"] * 9, "at": ["2024-01-01"] * 9, "n": range(9)}), drop / "a")
    (drop / "b").write_bytes((drop / "a").read_bytes()[:-20])
    (drop / "c").write_bytes(b"")
    whole, cut, empty = listed(drop, source)
    assert read(whole, source)["c_n"].to_pylist() == list(range(9))
    assert rejection(cut, source) == "unreadable_file"
    assert rejection(empty, source) == "empty_file"


def test_other_columns_fail_the_landing_where_the_source_says_so() -> None:
    strict = SHOP.model_copy(update={"unknown_columns": "fail"})
    lacking = Drift("columns_missing", "expected each declared column, found no `n` (the file has `N`)", 1, "shop/a")
    new = Drift("unknown_column", "expected declared columns only, found 'm'", 3, "shop/b")
    check_drift(SHOP, [new, lacking])
    check_drift(strict, [])
    with pytest.raises(ColumnsChangedError) as refused:
        check_drift(strict, [new, lacking])
    assert refused.value.as_json() == {"code": "columns_changed", "rules": {"columns_missing": 1, "unknown_column": 3}}
    assert "shop/a: expected each declared column, found no `n` (the file has `N`); 3 times" in str(refused.value)
