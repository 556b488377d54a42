"""Commits by Spark and by `deltalake` to one table: each creates the next version, and none is lost.

`tests/golden/test_cluster.py` has these pass on S3, too.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from spark_jobs.jvm.scala_code import LOG_STORE, PACKAGE, S3_LOG_STORE
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.file_commits import append_files, destination
from spark_jobs.storage.delta.places import WAREHOUSE, TableHandle, as_root, file_system, lake_root, storage_options
from spark_jobs.storage.delta.written_files import Layout
from tests.empty_lake import remove_folder

pytestmark = pytest.mark.spark

COMMITS = 12


@pytest.fixture
def place(spark: SparkSession) -> Iterator[str]:
    """A new folder beside the tables of the lake, as Spark names it. It goes with the test: a backup is restored into
    an empty lake only."""
    folder = f"{spark.conf.get(WAREHOUSE)}/höme of 50% {uuid.uuid4()}"
    yield folder
    remove_folder(as_root(folder))


def test_commits_of_both_at_once_are_all_there(spark: SparkSession, place: str) -> None:
    handle = TableHandle(as_root(place), storage_options(spark, lake_root(spark)))
    spark.range(0).withColumnRenamed("id", "n").write.format("delta").save(place)
    to = destination(handle, (), ("n",), Layout())
    failures: list[BaseException] = []

    def commit_files(first: int) -> None:
        try:
            for n in range(first, first + COMMITS):
                append_files(handle, to.write([pa.table({"n": [n]})]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=commit_files, args=(100 * number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for n in range(COMMITS):
        spark.range(n, n + 1).withColumnRenamed("id", "n").write.format("delta").mode("append").save(place)
    for thread in threads:
        thread.join()
    assert failures == []
    expected = sorted([*range(COMMITS), *range(100, 100 + COMMITS), *range(200, 200 + COMMITS)])
    assert sorted(row.n for row in spark.read.format("delta").load(place).collect()) == expected
    assert open_table(handle).version() == 3 * COMMITS


def test_a_version_that_is_there_is_not_written_again(spark: SparkSession, place: str) -> None:
    java: Any = spark.sparkContext._jvm
    scheme, of_scheme = ("s3a", S3_LOG_STORE) if place.startswith("s3a:") else ("file", LOG_STORE)
    assert spark.conf.get(f"spark.delta.logStore.{scheme}.impl") == of_scheme
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    store = getattr(getattr(java, PACKAGE), of_scheme.rpartition(".")[2])(hadoop)
    name = "00000000000000000007.json"

    def write(text: str, *, overwrite: bool = False) -> None:
        lines = java.java.util.ArrayList()
        lines.add(text)
        store.write(java.org.apache.hadoop.fs.Path(f"{place}/{name}"), lines.iterator(), overwrite, hadoop)

    files = file_system(as_root(place), storage_options(spark, lake_root(spark)))

    def stored() -> str:
        return files.open_input_file(name).read().decode()

    write("first")
    with pytest.raises(Exception, match="FileAlreadyExists"):
        write("second")
    assert stored() == "first\n"
    assert [info.path for info in files.get_file_info(fs.FileSelector("", recursive=True))] == [name]
    if scheme == "s3a":
        # the answer to a put that was made may be lost, and the put then be made again: it is the same commit
        write("first")
    write("third", overwrite=True)
    assert stored() == "third\n"
