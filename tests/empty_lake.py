"""Emptying a test's lake."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from spark_jobs.storage.delta.places import lake_root
from tests.moto import bucket_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.file_session import FileSession

DATABASES = ("bronze", "trace", "silver", "gold", "quality", "marts", "marts_staging", "pins")


def empty(session: SparkSession | FileSession) -> None:
    """Leave none of Tidemark's databases, in the catalog or in the lake.

    A catalog that lost a table takes it up again as an external one, and dropping those leaves their files.
    """
    from tests.support.file_session import FileSession

    if isinstance(session, FileSession):
        session.clear()
    else:
        _empty(session)


def _empty(spark: SparkSession) -> None:
    # not where this file is imported: tests that start no JVM import it, too
    from spark_jobs.lifecycle.environments import KEPT

    of_environments = [row.namespace for row in spark.sql("SHOW DATABASES LIKE '*__*'").collect()]
    for name in of_environments:
        spark.sql(f"DROP DATABASE {name} CASCADE")
    lose_catalog(spark)
    for name in (*DATABASES, *of_environments):
        remove_folder(f"{lake_root(spark)}/{name}.db")
    remove_folder(f"{lake_root(spark)}/{KEPT}")


def remove_folder(place: str) -> None:
    """Remove a folder of this machine or of the bucket that the environment leads to, if it is there."""
    if place.startswith("s3://"):
        bucket_files({**os.environ}).delete_dir_contents(place.removeprefix("s3://"), missing_dir_ok=True)
    else:
        shutil.rmtree(place, ignore_errors=True)


def lose_catalog(spark: SparkSession) -> None:
    """Drop Tidemark's databases from the catalog; tables that it took up keep their files."""
    for name in DATABASES:
        spark.sql(f"DROP DATABASE IF EXISTS {name} CASCADE")
