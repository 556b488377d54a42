"""The dbt project as files: which marts there are, what they promise, and that nothing of it leaves the machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

DBT = Path(__file__).parents[2] / "dbt"
MARTS = DBT / "models" / "marts"

COLUMNS = {
    "airport_delays": ["origin", "window_start", "window_end", "departures", "mean_delay", "max_delay"],
    "aircraft_rotations": ["tailnum", "session_start", "session_end", "flights", "air_minutes"],
    "aircraft_state": ["tailnum", "flights", "air_minutes", "miles", "delay_minutes", "last_departed"],
    "weather_now": [
        *("origin", "observed_at", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip"),
        *("pressure", "visib"),
    ],
}
"""The columns that the marts of the sample promise."""


def declared(mart: str) -> dict[str, Any]:
    (model,) = yaml.safe_load((MARTS / f"{mart}.yml").read_text())["models"]
    return model


def query(mart: str) -> str:
    return (MARTS / f"{mart}.sql").read_text()


def test_the_marts_are_those_of_the_contract() -> None:
    assert {path.stem for path in MARTS.glob("*.sql")} == set(COLUMNS)
    assert {path.stem for path in MARTS.glob("*.yml")} == set(COLUMNS)


@pytest.mark.parametrize("mart", COLUMNS)
def test_a_mart_declares_the_columns_of_the_contract_each_with_type_and_meaning(mart: str) -> None:
    model = declared(mart)
    assert model["name"] == mart
    assert [column["name"] for column in model["columns"]] == COLUMNS[mart]
    assert all(column["data_type"] and len(column["description"]) > 5 for column in model["columns"])


@pytest.mark.parametrize("mart", COLUMNS)
def test_a_mart_is_tested_for_its_grain_which_its_description_names(mart: str) -> None:
    model = declared(mart)
    (test,) = model["tests"]
    grain = test["grain"]["arguments"]["columns"]
    assert set(grain) <= set(COLUMNS[mart])
    assert f"Grain: {' and '.join(grain)}." in model["description"]


@pytest.mark.parametrize("mart", COLUMNS)
def test_a_mart_is_built_with_the_source_that_it_follows(mart: str) -> None:
    (tag,) = re.findall(r"tags=\['(\w+)'\]", query(mart))
    assert re.findall(r"follows='(\w+)'", query(mart)) == [tag]
    assert (DBT.parent / "dags" / "sources" / f"{tag}.yml").exists()


@pytest.mark.parametrize("mart", COLUMNS)
def test_a_mart_reads_names_that_are_described_and_published(mart: str) -> None:
    document = yaml.safe_load((DBT / "models" / "sources.yml").read_text())
    known = {(source["name"], table["name"]) for source in document["sources"] for table in source["tables"]}
    read = set(re.findall(r"source\('(\w+)', '(\w+)'\)", query(mart)))
    assert read <= known
    assert not any(name.endswith("_history") for _, name in read)


def test_dbt_reports_to_nobody_and_writes_nothing_into_the_checkout() -> None:
    project = yaml.safe_load((DBT / "dbt_project.yml").read_text())
    assert project["flags"]["send_anonymous_usage_stats"] is False
    assert {"target-path", "log-path", "packages-install-path"}.isdisjoint(project)
    assert not list(DBT.rglob("__init__.py"))
    assert {path.name for path in DBT.iterdir()} == {
        "README.md",
        "dbt_project.yml",
        "macros",
        "models",
        "profiles.yml",
        "tests",
    }
