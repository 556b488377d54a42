"""Statements as known at a time: the names of published tables are replaced, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spark_jobs.errors import ParameterError
from spark_jobs.portal.sql.as_of import instant, read_past
from spark_jobs.portal.sql.parsing import MOST_CHARACTERS

AT = datetime(2024, 1, 2, 3, 4, tzinfo=UTC)
FUNCTIONS = {"silver.hourly_as_of", "gold.meters_as_of"}
HOURLY = "`silver`.`hourly_as_of`(TIMESTAMP '2024-01-02 03:04:00Z')"
METERS = "`gold`.`meters_as_of`(TIMESTAMP '2024-01-02 03:04:00Z')"


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("SELECT * FROM silver.hourly", f"SELECT * FROM {HOURLY} AS `hourly`"),
        ("select n from silver.hourly h", f"select n from {HOURLY} h"),
        ("select n from silver.hourly AS `a b` -- silver.hourly", f"select n from {HOURLY} AS `a b` -- silver.hourly"),
        ("SELECT n FROM `silver` . `hourly`", f"SELECT n FROM {HOURLY} AS `hourly`"),
        ("SELECT n FROM spark_catalog.silver.hourly", f"SELECT n FROM {HOURLY} AS `hourly`"),
        (
            "SELECT h.n, gold.meters.x FROM silver.hourly h JOIN gold.meters ON h.meter = gold.meters.meter",
            f"SELECT h.n, meters.x FROM {HOURLY} h JOIN {METERS} AS `meters` ON h.meter = meters.meter",
        ),
        ("SELECT silver.hourly.* FROM silver.hourly", f"SELECT hourly.* FROM {HOURLY} AS `hourly`"),
        (
            "SELECT n FROM (SELECT n FROM silver.hourly) WHERE n IN (SELECT x FROM gold.meters m)",
            f"SELECT n FROM (SELECT n FROM {HOURLY} AS `hourly`) WHERE n IN (SELECT x FROM {METERS} m)",
        ),
        (
            "WITH hourly AS (SELECT * FROM silver.hourly) SELECT * FROM hourly",
            f"WITH hourly AS (SELECT * FROM {HOURLY} AS `hourly`) SELECT * FROM hourly",
        ),
        (
            "SELECT n FROM silver.hourly UNION ALL SELECT n FROM silver.hourly",
            f"SELECT n FROM {HOURLY} AS `hourly` UNION ALL SELECT n FROM {HOURLY} AS `hourly`",
        ),
        ("SELECT '😀 silver.hourly', n FROM silver.hourly", f"SELECT '😀 silver.hourly', n FROM {HOURLY} AS `hourly`"),
        ("FROM silver.hourly |> WHERE n > 7", f"FROM {HOURLY} AS `hourly` |> WHERE n > 7"),
    ],
)
def test_names_of_published_tables_are_replaced(statement: str, text: str) -> None:
    assert read_past(statement, AT, FUNCTIONS).text == text


def test_tables_without_a_past_are_named_and_stay() -> None:
    statement = "WITH c AS (SELECT 1) SELECT * FROM silver.hourly JOIN marts.loads JOIN gold.state JOIN c"
    read = read_past(statement, AT, FUNCTIONS)
    assert (read.past, read.present) == (["silver.hourly"], ["marts.loads", "gold.state"])
    assert read.text == statement.replace("silver.hourly", f"{HOURLY} AS `hourly`")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "SELECT * FROM silver.hourly_as_of(TIMESTAMP '2024-01-01')",
        "WITH hourly AS (SELECT 1) SELECT * FROM hourly",
        "SELECT 'silver.hourly'",
    ],
)
def test_what_names_no_published_table_stays_as_it_was(statement: str) -> None:
    read = read_past(statement, AT, FUNCTIONS)
    assert (read.text, read.past, read.present) == (statement, [], [])


def test_names_are_compared_without_their_case() -> None:
    read = read_past("SELECT SILVER.Hourly.n FROM Silver.HOURLY", AT, FUNCTIONS)
    assert read.text == "SELECT Hourly.n FROM `Silver`.`HOURLY_as_of`(TIMESTAMP '2024-01-02 03:04:00Z') AS `HOURLY`"
    assert read.past == ["Silver.HOURLY"]


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE silver.hourly", "SHOW TABLES IN silver", "SELECT 1; SELECT 2", "SELECT (", "INSERT INTO a SELECT 1",
        f"SELECT {'(' * 5000}1{')' * 5000}", f"SELECT 1 -- {'x' * MOST_CHARACTERS}",
    ],
)  # fmt: skip
def test_only_a_query_has_a_past(statement: str) -> None:
    with pytest.raises(ParameterError, match="one query"):
        read_past(statement, AT, FUNCTIONS)


def test_a_time_of_the_control_is_in_utc() -> None:
    assert instant("2024-01-02T03:04") == AT
    assert instant("2024-01-02T04:04:00+01:00") == AT
    for text in ("", "yesterday", "2024-01-02'); DROP TABLE x --", "0001-01-01T00:00+14:00"):
        with pytest.raises(ParameterError, match="a time such as"):
            instant(text)
