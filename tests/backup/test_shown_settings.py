"""Settings in a backup have no password in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spark_jobs.backup.shown_settings import shown_settings
from spark_jobs.config import Settings


def test_what_a_backup_keeps_of_settings_shows_no_password(tmp_path: Path) -> None:
    places: dict[str, Any] = {
        "metastore_url": "jdbc:postgresql://db:5432/catalog?user=me&password=hunter2&ssl=true",
        "airflow_database_url": "postgresql+psycopg2://airflow:hunter2@db/airflow",
    }
    spark = {
        "spark.hadoop.fs.s3a.secret.key": "hunter2",
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:postgresql://db/catalog?user=me&password=hunter2",
        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=hunter2 -Xss4m",
        "spark.executor.memory": "2g",
    }
    settings = Settings(home=tmp_path, spark_conf=spark, **places)
    shown = shown_settings(settings)
    assert "hunter2" not in json.dumps(shown)
    assert shown["metastore_url"] == "jdbc:postgresql://db:5432/catalog?user=me&password=…&ssl=true"
    assert shown["airflow_database_url"] == "postgresql+psycopg2://…@db/airflow"
    assert shown["spark_conf"]["spark.executor.memory"] == "2g"
    assert shown["spark_conf"]["spark.driver.extraJavaOptions"] == "-Djavax.net.ssl.trustStorePassword=… -Xss4m"
