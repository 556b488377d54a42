"""The demo's queries name tables and columns that the shipped sources have; the demo itself is a long test."""

from __future__ import annotations

import re

import pytest

from spark_jobs.cli.commands.demo import QUERIES
from spark_jobs.config import CHECKOUT
from spark_jobs.definitions.catalog import source_tables
from spark_jobs.sources import load_source

SOURCES = [load_source(CHECKOUT / "dags" / "sources" / f"{name}.yml") for name in ("flights", "weather")]
TABLES = {table.qualified: {*table.column_names} for source in SOURCES for table in source_tables(source)}


@pytest.mark.parametrize("title", QUERIES)
def test_a_query_of_the_demo_reads_what_is_there(title: str) -> None:
    named = set(re.findall(r"\b(?:FROM|JOIN) (\w+\.\w+)", QUERIES[title]))
    published = {f"silver.{window}" for source in SOURCES for window in source.windows} | {"silver.late"}
    published |= {f"gold.{source.name}" for source in SOURCES}
    marts = {f"marts.{model.stem}" for model in (CHECKOUT / "dbt" / "models" / "marts").glob("*.sql")}
    assert named
    assert named <= {*TABLES} | published | marts


def test_the_columns_that_tell_of_verdicts_are_those_of_the_results() -> None:
    (query,) = [query for query in QUERIES.values() if "quality.results" in query]
    words = set(re.findall(r"[a-z_]+", re.sub(r"'[^']*'|AS \w+|\b[A-Z_]+\b", "", query)))
    functions = {"count", "count_if", "quality", "results"}
    assert words - functions <= TABLES["quality.results"]
