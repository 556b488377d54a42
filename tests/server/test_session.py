"""The classic session: Delta, UTC, importable workers, inert `${…}`, and a checkout whose folder has an odd name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.session import classic_conf
from tests.installations import ODD_NAME

pytestmark = [pytest.mark.spark, pytest.mark.turns]

WORK = """
import spark_jobs
from spark_jobs.session import open_session

def folders(batches):
    import pyarrow as pa
    import spark_jobs

    for batch in batches:
        yield pa.RecordBatch.from_pydict({"of": [str(spark_jobs.__path__[0])] * batch.num_rows})

spark = open_session()
try:
    spark.sql("CREATE TABLE t USING delta AS SELECT 7L AS n")
    (row,) = spark.table("t").mapInArrow(folders, "of string").collect()
    print(row.of)
    print(spark.conf.get("spark.driver.extraClassPath"))
finally:
    spark.stop()
"""


def test_a_delta_table_survives_a_round_trip_without_deletion_vectors(spark: SparkSession, database: str) -> None:
    spark.sql(f"CREATE TABLE {database}.t (id BIGINT COMMENT 'an id') USING delta")
    spark.sql(f"INSERT INTO {database}.t VALUES (1), (2)")
    spark.sql(f"DELETE FROM {database}.t WHERE id = 1")
    assert [row.id for row in spark.table(f"{database}.t").collect()] == [2]
    properties = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {database}.t").collect()}
    assert properties.get("delta.enableDeletionVectors", "false") == "false"


def test_python_workers_import_the_package(spark: SparkSession) -> None:
    def names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import spark_jobs

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"name": [spark_jobs.__name__] * batch.num_rows})

    assert spark.range(1).mapInArrow(names, "name string").collect()[0].name == "spark_jobs"


def test_statements_do_not_see_the_environment(spark: SparkSession) -> None:
    assert spark.sql("SELECT '${env:PATH}' AS v").collect()[0].v == "${env:PATH}"


def test_a_checkout_and_its_jars_may_have_any_name_that_is_not_refused(tmp_path: Path) -> None:
    checkout = tmp_path / f"{ODD_NAME} it's, so; [1] & $HOME"
    without = shutil.ignore_patterns("__pycache__", "classes", "broker")
    for name, place in {"spark_jobs": CHECKOUT / "spark_jobs", ".jars": Settings().jars}.items():
        shutil.copytree(place, checkout / name, ignore=without)
    # what makes a folder a checkout
    shutil.copy(CHECKOUT / "pyproject.toml", checkout)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    environment |= {"PYTHONPATH": str(checkout), "TIDEMARK_HOME": str(tmp_path / "home"), "TIDEMARK_SPARK": "classic"}
    environment |= {"TIDEMARK_MASTER": "local[1]", "TIDEMARK_HEAP": "1g"}
    done = subprocess.run(
        [sys.executable, "-c", WORK], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    folder, class_path = done.stdout.splitlines()
    assert folder == str(checkout / "spark_jobs")
    assert all(jar.startswith(f"{checkout}/.jars/") for jar in class_path.split(":"))


@pytest.mark.parametrize(
    ("options", "collectors"),
    [
        ("", ["-XX:+UseParallelGC"]),
        ("-Xss4m -XX:-UseGCOverheadLimit", ["-XX:+UseParallelGC"]),
        ("-XX:+UseZGC -Xss4m", ["-XX:+UseZGC"]),
        ("-XX:+UseG1GC", ["-XX:+UseG1GC"]),
    ],
)
def test_java_is_given_one_collector(options: str, collectors: list[str], tmp_path: Path) -> None:
    """Java does not start with two."""
    conf = classic_conf(Settings(home=tmp_path, java_options=options))
    named = conf["spark.driver.extraJavaOptions"].split()
    assert [option for option in named if option.startswith("-XX:+Use") and option.endswith("GC")] == collectors


def test_the_users_java_options_come_last(tmp_path: Path) -> None:
    """Java heeds the last of two that are the same."""
    option = "-XX:Tier4InvocationThreshold=5000"
    conf = classic_conf(Settings(home=tmp_path, java_options=option))
    assert [o for o in conf["spark.driver.extraJavaOptions"].split() if "Tier4Invocation" in o][-1] == option
