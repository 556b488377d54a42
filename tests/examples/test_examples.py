"""The examples: their source files, tests, marts and notebooks, as a newcomer runs them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Template

from spark_jobs.config import Settings
from spark_jobs.projects.examples import Example, examples
from spark_jobs.sources import load_source
from spark_jobs.trials.source_tests import run_tests
from spark_jobs.trials.trial import Trial, try_source
from tests.examples.notebooks import EXAMPLES, NOTEBOOKS, printed_lines, run_notebook, stored_outputs
from tests.support.file_session import FileSession

pytestmark = pytest.mark.slow
NAMES = ["clicks", "flights", "orders", "sensors"]


@dataclass(frozen=True)
class Ran:
    """An example, the trial of all its drops, and SQL over the published tables."""

    example: Example
    trial: Trial
    session: FileSession

    def rows_of(self, path: Path) -> list[dict[str, Any]]:
        """The rows of a query that is a dbt model or test."""
        sql = Template(path.read_text()).render(source=lambda database, name: f"{database}.{name}")
        return self.session.answer(sql).to_arrow_table().to_pylist()


@pytest.fixture(scope="module", params=NAMES)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    example = examples()[request.param]
    folder = tmp_path_factory.mktemp(example.name)
    settings = Settings(home=folder / "home", landing=example.folder / "landing")
    source, text = load_source(example.source_file), example.source_file.read_text()
    trial = try_source(settings, source, text, folder / "scratch")
    session = FileSession(Path(trial.installation.settings.lake))
    yield Ran(example, trial, session)
    session.close()


def test_there_are_four_and_each_has_all_parts() -> None:
    assert [*examples()] == NAMES
    for example in examples().values():
        assert load_source(example.source_file).name == example.source
        assert load_source(example.source_file).tests
        assert len(example.drops) >= 3
        assert (example.folder / f"{example.name}.ipynb").is_file()
        assert sum(path.stat().st_size for path in example.folder.rglob("*") if path.is_file()) < 200_000


@pytest.mark.turns
@pytest.mark.parametrize("name", NAMES)
def test_the_tests_of_its_source_file_pass_in_other_orders_too(name: str) -> None:
    path = examples()[name].source_file
    failed = [result for result in run_tests(load_source(path), path.read_text(), orders=1) if not result.passed]
    assert failed == []


def test_each_drop_is_run_and_some_rows_are_late_and_some_in_quarantine(ran: Ran) -> None:
    assert [drop.ran.drop for drop in ran.trial.drops] == ran.example.drops
    assert any(drop.late.num_rows for drop in ran.trial.drops)
    assert ran.trial.installation.rejects().num_rows


def test_late_rows_restate_windows_of_earlier_drops(ran: Ran) -> None:
    assert sum(restated.before.num_rows for drop in ran.trial.drops for restated in drop.restated)


def test_its_marts_have_rows_as_their_descriptions_say(ran: Ran) -> None:
    models = ran.example.folder / "dbt" / "models"
    described = {
        each["name"]: each for path in models.glob("*.yml") for each in yaml.safe_load(path.read_text())["models"]
    }
    assert {*described} == {path.stem for path in models.glob("*.sql")}
    for name, model in described.items():
        rows = ran.rows_of(models / f"{name}.sql")
        assert rows
        for column in model["columns"]:
            values = [row[column["name"]] for row in rows]
            rules = column.get("data_tests", [])
            assert "not_null" not in rules or None not in values
            assert "unique" not in rules or len({*values}) == len(values)


def test_its_tests_of_marts_find_nothing(ran: Ran) -> None:
    for path in (ran.example.folder / "dbt" / "tests").glob("*.sql"):
        assert ran.rows_of(path) == []


def test_what_each_example_is_about_is_in_its_numbers(ran: Ran) -> None:
    models = ran.example.folder / "dbt" / "models"
    match ran.example.name:
        case "clicks":
            visits = ran.rows_of(models / "visits_of_people.sql")
            assert "crawler" not in {row["visitor"] for row in visits}
            [phone] = [row for row in visits if row["visitor"] == "phone"]
            assert (phone["clicks"], phone["exit"]) == (4, "/pay")
        case "flights":
            known = []
            for drop in ran.trial.drops[:2]:
                assert drop.states is not None
                known += [row["flights"] for row in drop.states.to_pylist() if row["aircraft"] == "D-AC"]
            assert known == [3, 7]
        case "orders":
            worth = sum(row["cents"] for row in ran.session.sql("SELECT cents FROM gold.orders").collect())
            [booked] = ran.session.sql("SELECT sum(booked) AS booked FROM silver.bookings_daily").collect()
            assert f"{booked.booked}" == f"{worth / 100:.2f}"
            [last] = ran.session.sql("SELECT cents FROM gold.orders WHERE order_id = 'o-001'").collect()
            assert last.cents == 17980, "of two changes at one time the one with the greater number in the log"
        case "sensors":
            days = ran.rows_of(models / "sensor_days.sql")
            restated = {(row["sensor"], row["day"].day): row["hours_restated"] for row in days if row["hours_restated"]}
            assert restated == {("cellar", 1): 7}


@pytest.mark.turns
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_its_notebook_prints_what_it_shows_and_draws(path: Path) -> None:
    outputs = run_notebook(path)
    stored = [*stored_outputs(path)]
    assert [printed_lines(each) for each in outputs] == [printed_lines(each) for each in stored], (
        "run `python -m tests.examples.notebooks`, and look at what changed"
    )
    pictures = [["data" in output for output in each] for each in outputs]
    assert pictures == [["data" in output for output in each] for each in stored]
    assert any(any(each) for each in pictures)


def test_notebooks_are_of_jupyters_format() -> None:
    assert len(NOTEBOOKS) == len(NAMES)
    for path in NOTEBOOKS:
        document = json.loads(path.read_text())
        assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
        ids = [cell["id"] for cell in document["cells"]]
        assert len({*ids}) == len(ids)
        assert document["cells"][0]["cell_type"] == "markdown"


def test_the_page_of_examples_names_each() -> None:
    page = (EXAMPLES / "README.md").read_text()
    for name in NAMES:
        assert f"]({name}/" in page
