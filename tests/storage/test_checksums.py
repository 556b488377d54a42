"""The checksum beside our commits says what Spark works out from the log; it is left out where it can't be exact."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs.storage.delta.checksums import write_checksum
from spark_jobs.storage.delta.delta_log import CommitLost, LogDamaged, open_table
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.file_commits import append_files, destination
from spark_jobs.storage.delta.file_upkeep import compact_small_files
from spark_jobs.storage.delta.log_files import LOG_DIR, version_file
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.records import append_records
from spark_jobs.storage.delta.written_files import Layout


def checksums(table: Path) -> dict[int, dict[str, Any]]:
    return {int(path.stem): json.loads(path.read_text()) for path in (table / LOG_DIR).glob("0*.crc")}


def summed(table: Path) -> tuple[int, int]:
    """Bytes and files, as `deltalake` lists them."""
    sizes = pa.table(DeltaTable(str(table)).get_add_actions())["size_bytes"].to_pylist()
    return sum(sizes), len(sizes)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "höme of 50%"
    spark.range(3).selectExpr("id AS n", "'a' AS part").write.format("delta").partitionBy("part").save(str(place))
    yield place


def append(table: Path, *numbers: int, part: str = "b", dropped: tuple[str, ...] = ()) -> None:
    to = destination(TableHandle(str(table)), ("part",), ("n",), Layout())
    files = to.write([pa.table({"n": [*numbers], "part": [part] * len(numbers)})])
    append_files(TableHandle(str(table)), files, dropped=("part", dropped))


@pytest.mark.turns
@pytest.mark.spark
def test_after_any_commits_of_both_it_says_what_the_log_says(spark: SparkSession, table: Path) -> None:
    chosen, fence = random.Random(7), Fence("meters", 0)
    for n in range(30):
        doing = chosen.choice(["append", "fenced", "drop", "compact", "spark", "delete"])
        if doing == "fenced":
            fence = Fence("meters", n + 1)
            append_records(TableHandle(str(table)), [{"n": n, "part": "f"}], fence)
        elif doing == "append":
            append(table, n, part=chosen.choice("bcd"))
        elif doing == "drop":
            append(table, n, part="e", dropped=(chosen.choice("bcd"),))
        elif doing == "compact":
            compact_small_files(TableHandle(str(table)))
        elif doing == "spark":
            spark.range(n, n + 2).selectExpr("id AS n", "'c' AS part").write.format("delta").mode("append").save(
                str(table)
            )
        else:
            spark.sql(f"DELETE FROM delta.`{table}` WHERE n = {n - 1}")
        version = DeltaTable(str(table)).version()
        stated = checksums(table)[version]
        assert (stated["tableSizeBytes"], stated["numFiles"]) == summed(table), doing
        tokens = {each["appId"]: each["version"] for each in stated["setTransactions"]}
        assert tokens == ({fence.app_id: fence.token} if fence.token else {}), doing
        assert stated["domainMetadata"] == []


@pytest.mark.spark
def test_spark_starts_a_job_less(spark: SparkSession, table: Path) -> None:
    append(table, 10, 11)
    java: Any = spark._jvm
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()

    def jobs() -> int:
        java.org.apache.spark.sql.delta.DeltaLog.clearCache()
        before = scheduler.numTotalJobs()
        assert spark.read.format("delta").load(str(table)).where("n > 1").count() == 3
        return int(scheduler.numTotalJobs() - before)

    jobs()
    with_checksum = jobs()
    (stated,) = checksums(table)
    (table / LOG_DIR / f"{stated:020d}.crc").unlink()
    assert jobs() == with_checksum + 1


def test_without_a_checksum_or_a_commit_to_start_from_it_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / LOG_DIR
    log.mkdir()
    described = {"tableSizeBytes": 5, "numFiles": 1, "metadata": {"id": "x"}, "protocol": {"minReaderVersion": 1}}
    add = json.dumps({"add": {"path": "a", "size": 7}})
    (log / f"{1:020d}.json").write_text(add)
    assert not write_checksum(tmp_path, 1), "no checksum"
    (log / f"{0:020d}.crc").write_text(json.dumps(described))
    assert not write_checksum(tmp_path, 2), "no commit"
    (log / f"{2:020d}.json").write_text(json.dumps({"remove": {"path": "a"}}))
    assert not write_checksum(tmp_path, 2), "a file is removed whose size is not said"
    assert [*checksums(tmp_path)] == [0]
    assert write_checksum(tmp_path, 1)
    assert checksums(tmp_path) == {
        1: described | {"tableSizeBytes": 12, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}
    }
    (log / f"{1:020d}.crc").write_text("cut")
    assert not write_checksum(tmp_path, 2)


def test_a_log_whose_newest_commit_is_gone_is_told_from_one_that_is_damaged(tmp_path: Path) -> None:
    for n in range(2):
        write_deltalake(tmp_path, pa.table({"n": [n]}), mode="append")
    log = tmp_path / LOG_DIR
    newest, checksum = (log / version_file(1, suffix) for suffix in ("json", "crc"))
    commit = newest.read_text()
    newest.write_text("no JSON")
    with pytest.raises(LogDamaged, match=r"1\.json cannot be read"):
        open_table(TableHandle(str(tmp_path)))
    newest.unlink()
    described = {"tableSizeBytes": 1, "numFiles": 2, "numMetadata": 1, "numProtocol": 1, "metadata": {}}
    checksum.write_text(json.dumps({**described, "protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}))
    with pytest.raises(CommitLost, match="its checksum alone"):
        open_table(TableHandle(str(tmp_path)))
    newest.write_text(commit)
    assert open_table(TableHandle(str(tmp_path))).version() == 1
