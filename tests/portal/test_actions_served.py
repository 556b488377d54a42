"""The portal's actions as a person does them: in a browser, logged in by `tidemark open`, against a real Airflow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.model import ACTIONS
from spark_jobs.server.airflow_api import AirflowApi
from tests.installations import TIDEMARK, Installation, until
from tests.jobs.harness import SOURCE, Reading, path_of, write_lines, write_source
from tests.portal.browser import SIZES, Visit, browser

pytestmark = [
    pytest.mark.server,
    pytest.mark.airflow,
    pytest.mark.turns(together=True),
    pytest.mark.timeout(1200),
]

CHECKED = SOURCE + (
    "checks: {small: {kind: between, column: load, max: 90}}\ndag: {schedule: manual, retry_delay: 1 s}\n"
)
PICTURES = os.environ.get("TIDEMARK_PICTURES")
WHY = "since <b>the test</b> asks & waits"


@dataclass
class World:
    """An installation with Airflow, its client, and a tab of a browser that is logged in to its portal."""

    installation: Installation
    api: AirflowApi
    visit: Visit
    portal: str

    def open(self, page: str) -> None:
        self.visit.open(f"{self.portal}/{page}")

    def press(self, name: str) -> None:
        """Press a button, and wait for the page that follows."""
        self.visit.follow(self.visit.tab.get_by_role("button", name=name, exact=True))

    def follow(self, name: str) -> None:
        self.visit.follow(self.visit.tab.get_by_role("link", name=name, exact=True).first)

    def fill(self, **fields: str) -> None:
        for label, text in fields.items():
            self.visit.tab.get_by_label(label.replace("_", " ")).fill(text)

    def newest(self, dag: str = "meters") -> dict[str, Any]:
        """The newest run of a DAG."""
        run: dict[str, Any] = self.api.get(f"dags/{dag}/dagRuns", order_by="-id", limit=1)["dag_runs"][0]
        return run

    def wait(self, dag: str = "meters") -> dict[str, Any]:
        """The newest run of a DAG once it has ended."""
        until(lambda: self.newest(dag)["state"] in ("success", "failed"), 240, f"a run of {dag} never ended")
        return self.newest(dag)

    def approve(self, answer: str = "Approve") -> None:
        """Answer the question of the run whose page is open, once it asks."""
        button = self.visit.tab.get_by_role("button", name=answer, exact=True)
        button.wait_for(timeout=240_000)
        self.visit.follow(button)

    def picture(self, name: str) -> None:
        """Take the documentation's picture of the page, where TIDEMARK_PICTURES names its folder."""
        if PICTURES is not None:
            self.visit.tab.screenshot(path=Path(PICTURES) / f"{name}-1280-light.png", full_page=True)

    def sql(self, query: str) -> list[dict[str, Any]]:
        return self.installation.sql(query)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("actions")
    installation = Installation(folder / "home", sources=folder / "home" / "sources")
    settings = write_source(installation.settings, CHECKED)
    good = [Reading(0, 10, "a", 5).line(), Reading(0, 70, "b", 7).line()]
    write_lines(settings, 0, [*good, json.dumps({**json.loads(good[0]), "id": "x", "load": "many"})])
    write_lines(settings, 0, ["bring milk"], name="notes.txt")
    write_lines(settings, 1, [Reading(1, 24 * 60 + 5, "a", 1000).line()])
    write_lines(settings, 2, [Reading(2, 48 * 60 + 5, "a", 8).line()])
    # without a browser nothing is started
    with browser() as started, installation.serving(), AirflowApi(settings) as api:
        until(lambda: any(dag["dag_id"] == "meters" for dag in api.get("dags")["dags"]), 120, "no DAG")
        opening = installation.start(str(TIDEMARK), "open", "--no-browser", "--json")
        assert opening.stdout is not None
        with opening.stdout as printed:
            opened = json.loads(printed.readline())
            visit = Visit(started, SIZES[0], offline=False)
            visit.open(opened["link"])
            assert opening.wait(timeout=60) == 0
        yield World(installation, api, visit, opened["page"].rpartition("/")[0])
        visit.close()


def test_a_run_is_planned_approved_and_published(world: World) -> None:
    world.open("sources/meters.html")
    world.follow("Run drops")
    assert world.visit.faults() == []
    world.picture("act")
    world.fill(first_drop="2024-01-01", why=WHY)
    world.press("Run drops")
    world.approve("Reject")
    rejected = world.wait()
    assert (rejected["conf"]["plan"], rejected["note"]) == (True, f"Run drops: {WHY}")
    assert rejected["triggering_user_name"] == "admin"
    # a plan makes no database
    assert world.sql("SHOW DATABASES LIKE 'bronze'") == []

    world.follow("meters")
    world.follow("Run drops")
    world.fill(first_drop="2024-01-01", why=WHY)
    world.press("Run drops")
    plan = world.visit.tab.get_by_role("region", name="The plan")
    plan.wait_for(timeout=240_000)
    assert "silver.hourly" in plan.inner_text()
    assert world.visit.faults() == []
    world.picture("plan")
    world.approve()
    assert world.wait()["state"] == "success"
    world.visit.tab.get_by_text("It applied the plan").wait_for(timeout=60_000)
    assert WHY in world.visit.tab.inner_text("main")
    assert world.sql("SELECT meter, n FROM silver.hourly ORDER BY meter") == [
        {"meter": "a", "n": 1},
        {"meter": "b", "n": 1},
    ]


def test_records_in_quarantine_are_closed_and_read_again(world: World) -> None:
    world.open("quarantine/meters.html")
    section = world.visit.tab.locator("section", has_text="notes.txt")
    world.visit.follow(section.get_by_role("link", name="Close", exact=True))
    world.fill(why="a shopping list")
    world.press("Close records in quarantine")
    assert world.wait(ACTIONS)["state"] == "success"
    closed = world.sql("SELECT file, because, dismissed_by FROM bronze.quarantine WHERE replay_state = 'dismissed'")
    assert [(row["because"], row["dismissed_by"]) for row in closed] == [("a shopping list", "admin")]
    world.visit.tab.reload()
    actions = world.visit.tab.get_by_role("region", name="Actions").inner_text()
    assert "a shopping list" in actions and "admin" in actions and WHY in actions

    # the file is mended
    file = world.installation.settings.landing_folder / path_of(0)
    file.write_text(file.read_text().replace('"many"', "4"))
    world.open("quarantine/meters.html")
    world.follow("Read them again")
    world.fill(why="the meter's owner wrote a number")
    world.press("Read records in quarantine again")
    world.approve()
    run = world.wait()
    assert (run["state"], run["conf"]["replay"], run["conf"]["rule"]) == ("success", True, "bad_int")
    assert world.sql("SELECT count(*) AS n FROM bronze.quarantine WHERE replay_state = 'open'") == [{"n": 0}]
    assert world.sql("SELECT count(*) AS n FROM bronze.meters_deltas") == [{"n": 3}]


def test_a_check_is_let_pass_with_a_reason_and_the_drop_is_taken_back(world: World) -> None:
    world.open("act/meters/run.html?from=2024-01-02&plan=")
    world.fill(why="the day after")
    world.visit.tab.get_by_label("show the changes first").uncheck()
    world.press("Run drops")
    assert world.wait()["state"] == "failed"
    world.visit.tab.reload()
    world.follow("Let it pass in a new run")
    world.visit.tab.get_by_label("show the changes first").uncheck()
    world.fill(why="it was a storm")
    world.press("Run drops")
    assert world.wait()["state"] == "success"
    assert world.sql("SELECT name, because, overridden_by FROM quality.overrides") == [
        {"name": "small", "because": "it was a storm", "overridden_by": "admin"}
    ]
    world.visit.tab.reload()
    world.follow("Take their rows back")
    world.fill(why="it was no storm")
    world.press("Take rows back")
    world.approve()
    assert world.wait()["state"] == "success"
    assert world.sql("SELECT count(*) AS n FROM bronze.meters_deltas WHERE delta_id LIKE '%-1000'") == [{"n": 0}]


def test_a_source_is_audited_pinned_and_backfilled(world: World) -> None:
    world.open("sources/meters.html")
    world.follow("Audit now")
    world.fill(why="before the end of the month")
    world.press("Audit now")
    assert world.wait(ACTIONS)["state"] == "success"
    world.open("act/meters/pin.html")
    world.fill(name_of_the_pin="january", why="the books")
    world.press("Pin the published tables")
    assert world.wait(ACTIONS)["state"] == "success"
    assert world.sql("SELECT count(*) AS n FROM pins.january__hourly")[0]["n"] > 0
    world.open("act/meters/backfill.html")
    world.fill(first_drop="2024-01-03", last_drop="2024-01-03", why="the rest")
    world.press("Run each drop by itself")
    until(lambda: world.newest()["run_type"] == "backfill", 60, "no run")
    assert world.wait()["state"] == "success"
    assert world.sql("SELECT count(*) AS n FROM bronze.meters_deltas WHERE delta_id LIKE '%-8'") == [{"n": 1}]
    world.visit.tab.reload()
    assert "Run each drop by itself" in world.visit.tab.inner_text("main")
    # a page of a run under way looks again by itself, and whoever leaves it then cancels that
    assert [each for each in world.visit.wrong if not each.startswith("failed: ")] == []


def test_what_airflow_refuses_is_said(world: World) -> None:
    world.open("act/meters/pin.html")
    world.fill(name_of_the_pin="january", why="again")
    world.press("Pin the published tables")
    assert world.wait(ACTIONS)["state"] == "failed"
    world.visit.tab.reload()
    assert "pin_exists" in world.visit.tab.inner_text("main")
    world.open("act/meters/retract.html?from=2024-01-01")
    world.fill(only_this_file="../../secret", why="?")
    world.press("Take rows back")
    assert world.wait()["state"] == "failed"
    world.visit.tab.reload()
    assert "expected a landed file of meters in 2024-01-01" in world.visit.tab.inner_text("main")
    world.open("act/meters/run.html")
    world.fill(first_drop="2199-01-01", why="?")
    world.press("Run drops")
    assert "drops that have begun by now" in world.visit.tab.inner_text("main")
