"""Kernels are loaded before a run needs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import CHECKOUT
from spark_jobs.jobs.rehearse import rehearse
from spark_jobs.sources import parse_source, read_sources
from tests.jobs.test_chains import OPERATIONS, UPSERT
from tests.jobs.test_decimals import SOURCE as MONEY


@pytest.mark.parametrize("name", ["flights", "weather"])
def test_made_up_rows_of_a_source_go_through_its_kernels(name: str, tmp_path: Path) -> None:
    assert rehearse(read_sources(CHECKOUT / "dags" / "sources").sources[name], tmp_path) == 3


@pytest.mark.parametrize("text", [UPSERT, OPERATIONS], ids=["upsert", "operations"])
def test_made_up_rows_go_through_the_kernels_of_chains(text: str, tmp_path: Path) -> None:
    assert rehearse(parse_source(text, file="meters.yml"), tmp_path) == 3


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_made_up_rows_have_decimals(form: str, tmp_path: Path) -> None:
    assert rehearse(parse_source(MONEY.replace("ndjson", form), file="shop.yml"), tmp_path) == 3


def test_a_worker_starts_with_the_kernels_in_memory(spark: SparkSession) -> None:
    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        before = [
            name in sys.modules for name in ("spark_jobs.engine.windows.kinds.sliding", "spark_jobs.landing.worker")
        ]
        for _ in batches:
            yield pa.record_batch({"loaded": before})

    assert [row.loaded for row in spark.range(1).coalesce(1).mapInArrow(loaded, "loaded BOOLEAN").collect()] == [
        True,
        True,
    ]
