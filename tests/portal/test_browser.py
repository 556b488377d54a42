"""The pages in a real browser without a network: no message on its console, nothing wider than a phone, no serious
fault of accessibility, and a failing row is some clicks away from the first page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.portal.browser import SIZES, Visit, browser
from tests.portal.conftest import EVIL


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.mark.turns
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_page_opens_quietly_fits_and_is_accessible(
    site: Path, started: Any, size: tuple[int, int], scheme: str
) -> None:
    pages = sorted(path for path in site.rglob("*.html") if "docs" not in path.relative_to(site).parts)
    assert len(pages) > 10
    visit = Visit(started, size, scheme=scheme)
    for page in pages:
        visit.open(page.as_uri())
        name = str(page.relative_to(site))
        assert (name, visit.wrong, visit.overflow(), visit.faults()) == (name, [], 0, [])
    visit.close()


def test_a_failing_row_is_found_by_clicking_from_the_first_page(site: Path, started: Any) -> None:
    visit = Visit(started, SIZES[0])
    visit.open((site / "index.html").as_uri())
    visit.follow(visit.tab.get_by_role("link", name="the last run failed at silver: total_is_small"))
    rows = visit.tab.get_by_role("region", name="Failing rows of total_is_small").get_by_role("row")
    assert EVIL in rows.nth(1).inner_text()
    visit.open((site / "index.html").as_uri())
    visit.follow(visit.tab.get_by_role("link", name="1 record in quarantine"))
    assert visit.tab.get_by_text('"meter": 3').count()
    visit.follow(visit.tab.get_by_role("link", name="test-1-1").first)
    assert visit.tab.get_by_role("heading", name="Run test-1-1").count() == 1
    assert visit.wrong == []


def test_from_a_mart_to_the_file_each_step_is_a_link(site: Path, started: Any) -> None:
    visit = Visit(started, SIZES[1])
    visit.open((site / "index.html").as_uri())
    visit.follow(visit.tab.get_by_role("navigation", name="Portal").get_by_role("link", name="Marts"))
    visit.follow(visit.tab.get_by_role("link", name="meter_hours"))
    visit.follow(visit.tab.get_by_role("link", name="why").first)
    files = visit.tab.get_by_role("region", name="Deltas").get_by_role("rowheader").get_by_role("link")
    shown = files.first.inner_text()
    visit.follow(files.first)
    landed = visit.tab.get_by_role("region", name="Files").get_by_role("rowheader").all_inner_texts()
    assert shown in landed
    assert visit.wrong == []


def test_a_run_leads_to_its_data_docs(site: Path, started: Any) -> None:
    visit = Visit(started, SIZES[0])
    visit.open((site / "runs" / "meters" / "test-0-0.html").as_uri())
    visit.follow(visit.tab.get_by_role("link", name="bronze", exact=True))
    assert "/docs/validations/bronze/test-0-0/" in visit.tab.url
    assert visit.tab.get_by_text("No landing adds a row id twice").first.is_visible()
    assert visit.wrong == []
