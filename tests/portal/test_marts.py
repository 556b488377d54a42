"""What the portal tells of marts: by dbt's manifest, by `quality.results`, and to whom."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.config import Settings
from spark_jobs.portal.asking import PageMissing, VisibleSources
from spark_jobs.portal.marts import Mart
from spark_jobs.portal.pages import Portal
from spark_jobs.storage.names.shown_marts import ShownMarts, note_shown
from tests.jobs.harness import SOURCE, write_source
from tests.portal.conftest import append_row

SHIPS = SOURCE.replace("meters", "ships").replace("  hourly:", "  by_hour:").replace("  shifts:", "  trips:")


def node(kind: str, name: str, reads: list[str], code: str = "select 1", **more: Any) -> dict[str, Any]:
    base = {"resource_type": kind, "name": name, "depends_on": {"nodes": reads}, "raw_code": code}
    return base | {"columns": {}, "config": {}} | more


METERS, BY_HOUR = "source.tidemark.silver.hourly", "source.tidemark.silver.by_hour"
MODELS = {
    "loads": node("model", "loads", [METERS], config={"follows": "meters"}),
    "teams": node("model", "teams", ["model.tidemark.loads"]),
    "both": node("model", "both", [METERS, BY_HOUR]),
    "by_hand": node("model", "by_hand", [], "select * from `silver`.by_hour join marts.loads"),
    "of_all": node("model", "of_all", ["source.tidemark.trace.published"]),
    "opaque": node("model", "opaque", [], "{{ anything() }}"),
    "aside": node("model", "aside", [METERS], "select * from spark_catalog.bronze.files"),
}
SINGULAR = node("test", "loads_add_up", ["model.tidemark.loads", "model.tidemark.both"], "select 2")
GENERIC = node("test", "grain_loads", ["model.tidemark.loads"], attached_node="model.tidemark.loads") | {
    "test_metadata": {"name": "grain", "kwargs": {"columns": ["meter", "window_start"]}}
}
TESTS = {"test.tidemark.loads_add_up": SINGULAR, "test.tidemark.grain_loads.1": GENERIC}
MANIFEST = {"nodes": {**{f"model.tidemark.{name}": model for name, model in MODELS.items()}, **TESTS}}


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    """An installation with two sources whose models dbt has built."""
    settings = write_source(Settings(home=tmp_path))
    write_source(settings, SHIPS, "ships")
    target = settings.home / "dbt" / "target"
    target.mkdir(parents=True)
    (target / "manifest.json").write_text(json.dumps(MANIFEST))
    # of the last build, which was of another source
    (target / "run_results.json").write_text(json.dumps({"results": []}))
    return settings


def found(home: Settings, name: str, verdict: str, source: str = "meters", token: int = 7, day: int = 1) -> None:
    """A row of `quality.results`, as a run leaves it."""
    row = {
        "source": source, "token": token, "run_id": f"run-{token}", "gate": "marts", "kind": "mart_test",
        "relation": None, "name": name, "expectation": f"{name} finds no row", "severity": "critical",
        "treatment": "fail", "verdict": verdict, "observed": f"seen on day {day}", "expected": "0 rows", "failing": 0,
        "sample": json.dumps([{"secret": 42}]), "because": None, "on_failure": None,
        "recorded_at": datetime(2024, 1, day, tzinfo=UTC),
    }  # fmt: skip
    append_row(home, "quality.results", row)


def mart(home: Settings, name: str) -> Mart:
    return Portal(home, is_live=True).marts()[name]


def seeing(*sources: str | None) -> VisibleSources:
    return VisibleSources(lambda source: source in sources)


def seen(home: Settings, *sources: str | None) -> set[str]:
    """The marts that are listed and shown to those who may read these sources."""
    portal, scope = Portal(home, is_live=True), seeing(*sources)
    listed = {name for name in MODELS if f"marts/{name}.html" in portal.page("marts.html", scope=scope)}
    for name in MODELS:
        if name in listed:
            portal.page(f"marts/{name}.html", scope=scope)
        else:
            with pytest.raises(PageMissing):
                portal.page(f"marts/{name}.html", scope=scope)
    return listed


def test_a_query_that_tests_counts_for_every_model_that_it_reads(home: Settings) -> None:
    assert [test.name for test in mart(home, "loads").tests] == ["loads_add_up", "grain_loads"]
    assert [test.name for test in mart(home, "both").tests] == ["loads_add_up"]
    assert mart(home, "teams").tests == []
    assert mart(home, "loads").grain == ("meter", "window_start")
    portal = Portal(home, is_live=True)
    for page in ("marts.html", "marts/loads.html", "marts/both.html"):
        assert "never run" in portal.page(page)


def test_each_test_shows_its_last_result_whichever_source_was_built_last(home: Settings) -> None:
    found(home, "grain_loads", "failed", token=3, day=1)
    found(home, "grain_loads", "passed", token=7, day=2)
    found(home, "loads_add_up", "passed", token=7, day=2)
    # the run of another source counts by its own tokens
    found(home, "loads_add_up", "failed", source="ships", token=2, day=3)
    verdicts = {test.name: test.verdict for test in mart(home, "loads").tests}
    assert verdicts == {"grain_loads": "passed", "loads_add_up": "failed"}
    page = Portal(home, is_live=True).page("marts/loads.html")
    assert "seen on day 2" in page and "seen on day 3" in page and "seen on day 1" not in page
    assert "runs/meters/run-7.html" in page and "runs/ships/run-2.html" in page


def test_a_model_without_follows_shows_its_recorded_results(home: Settings) -> None:
    found(home, "loads_add_up", "failed")
    page = Portal(home, is_live=True).page("marts/both.html")
    assert "seen on day 1" in page and "secret" in page


def test_a_mart_is_shown_to_those_who_may_read_all_that_it_is_made_of(home: Settings) -> None:
    of_meters = {"loads", "teams"}
    assert seen(home) == set()
    assert seen(home, "ships") == set()
    assert seen(home, "meters") == of_meters
    told = of_meters | {"both", "by_hand"}
    assert seen(home, "meters", "ships") == told, "what reads something that can't be told needs the reading of all"
    assert seen(home, None) == set(), "of all, and of each"
    assert seen(home, "meters", "ships", None) == told | {"of_all", "opaque", "aside"}


def test_what_a_test_found_is_shown_to_those_who_may_read_all_that_it_reads(home: Settings) -> None:
    found(home, "loads_add_up", "failed")
    found(home, "grain_loads", "failed", token=8)
    page = Portal(home, is_live=True).page("marts/loads.html", scope=seeing("meters"))
    assert page.count("secret") == 1, "the column of its own test"
    assert "select 2" not in page
    assert "loads_add_up" in page


def build(home: Settings, name: str) -> None:
    """Rows of a mart as a build of dbt leaves them: of three meters, with a decimal."""
    rows = {
        "meter": ["b", "a", "a"],
        "window_start": [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 1, 2)],
        "price": [Decimal("1.50"), Decimal("2.25"), None],
    }
    place = f"{home.lake}/marts_staging.db/{name}"
    write_deltalake(place, pa.table(rows))
    note_shown(home.home, "meters", ShownMarts(1, "", {name: DeltaTable(place).version()}))


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page[page.index("<main") :])))


def test_a_mart_page_has_types_and_the_order_of_its_rows(home: Settings) -> None:
    build(home, "loads")
    page = Portal(home, is_live=True).page("marts/loads.html")
    text = text_of(page)
    assert "meter string –" in text and "window_start timestamp –" in text and "price decimal(3,2) –" in text
    assert "3 rows, ordered by window_start, newest first; meter." in text
    assert re.search(r"a 2024-01-02 00:00Z – .*a 2024-01-01 00:00Z 2.25 .*b 2024-01-01 00:00Z 1.50 ", text)
    assert '<th scope="col" class="num">price</th>' in page and '<td class="num">1.50</td>' in page
    assert '<a href="#rows">3</a>' in page


def test_a_mart_without_a_grain_says_so(home: Settings) -> None:
    build(home, "teams")
    text = text_of(Portal(home, is_live=True).page("marts/teams.html"))
    assert "grain not declared: no test `grain` names columns" in text
    assert "3 rows, in no particular order, as no grain is declared." in text


def test_numbers_of_marts_lead_to_their_rows_and_no_link_is_a_dash(home: Settings) -> None:
    build(home, "loads")
    found(home, "grain_loads", "warned")
    portal = Portal(home, is_live=True)
    for page in ("index.html", "marts.html"):
        html = portal.page(page)
        assert '<a href="marts/loads.html#rows">3</a>' in html
        assert 'href="marts/loads.html#tests"' in html
    pages = ["index.html", "marts.html", *(f"marts/{name}.html" for name in MODELS)]
    for page in pages:
        html = portal.page(page)
        assert not re.search(r"<a [^>]*>\s*–?\s*</a>", html), page
        assert {*re.findall(r'href="#(\w+)"', html)} <= {*re.findall(r'id="(\w+)"', html)}, page
