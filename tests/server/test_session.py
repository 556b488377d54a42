"""The classic session: Delta, UTC, importable workers, inert `${…}`."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark


def test_a_delta_table_survives_a_round_trip_without_deletion_vectors(spark, database):
    spark.sql(f"CREATE TABLE {database}.t (id BIGINT COMMENT 'an id') USING delta")
    spark.sql(f"INSERT INTO {database}.t VALUES (1), (2)")
    spark.sql(f"DELETE FROM {database}.t WHERE id = 1")
    assert [row.id for row in spark.table(f"{database}.t").collect()] == [2]
    properties = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {database}.t").collect()}
    assert properties.get("delta.enableDeletionVectors", "false") == "false"


def test_python_workers_import_the_package(spark):
    def names(batches):
        import pyarrow as pa

        import spark_jobs

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"name": [spark_jobs.__name__] * batch.num_rows})

    assert spark.range(1).mapInArrow(names, "name string").collect()[0].name == "spark_jobs"


def test_statements_do_not_see_the_environment(spark):
    assert spark.sql("SELECT '${env:PATH}' AS v").collect()[0].v == "${env:PATH}"
