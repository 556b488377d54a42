"""The work of the portal's script in a real browser: charts, the reader's zone, the filter of cards, hints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.portal.site import write_site
from tests.jobs.harness import SOURCE, Reading, run, write_lines, write_source
from tests.portal.browser import SIZES, Visit, browser
from tests.support.file_session import FileSession

NIGHT = 24 * 60
OTHER = SOURCE.replace("meters", "ships").replace("  hourly:", "  by_hour:").replace("  shifts:", "  trips:")


@pytest.fixture(scope="module")
def pages(file_lake: FileSession, spark_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a source with two drops, of which the second has a late row, and of one that never ran."""
    folder = tmp_path_factory.mktemp("home")
    home = spark_settings.model_copy(update={"home": folder, "landing": folder / "landing"})
    home = write_source(home, f"{SOURCE}dag: {{owner: grid, tags: [energy]}}\n")
    write_source(home, f"{OTHER}dag: {{owner: harbour, tags: [sea]}}\n", "ships")
    write_lines(home, 0, [Reading(0, minute, "a", minute).line() for minute in (10, 20, NIGHT - 30)])
    write_lines(home, 1, [Reading(1, NIGHT - 20, "a", 3).line(), Reading(1, NIGHT + 30, "b", 4).line()])
    for drop in (0, 1):
        run(file_lake, home, drop, drop)
    write_site(home, folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as running:
        yield running


def opened(started: Any, page: Path, size: int = 0, **options: Any) -> Visit:
    visit = Visit(started, SIZES[size], **options)
    visit.open(page.as_uri())
    return visit


def test_charts_are_drawn_and_read_by_keyboard(pages: Path, started: Any) -> None:
    visit = opened(started, pages / "sources" / "meters.html")
    chart = visit.tab.locator(".canvas.drops").first
    chart.scroll_into_view_if_needed()
    chart.locator("svg").wait_for()
    chart.focus()
    reading = visit.tab.locator("figure.chart .reading").first
    visit.tab.keyboard.press("End")
    assert reading.inner_text() == "2024-01-02, Rows: 2 rows, Late rows: 1 row"
    visit.tab.keyboard.press("ArrowLeft")
    assert reading.inner_text() == "2024-01-01, Rows: 3 rows, Late rows: 0 rows"
    assert "Late rows: 0 rows" in (chart.locator("svg").text_content() or "")
    visit.tab.keyboard.press("Escape")
    assert reading.inner_text() == ""
    assert visit.wrong == []
    visit.close()


@pytest.mark.turns
def test_every_chart_of_every_page_is_drawn_without_a_word_on_the_console(pages: Path, started: Any) -> None:
    kinds: set[str] = set()
    visit = opened(started, pages / "index.html", scheme="dark")
    for page in sorted(path for path in pages.rglob("*.html") if "docs" not in path.relative_to(pages).parts):
        visit.open(page.as_uri())
        for canvas in visit.tab.locator("figure.chart .canvas").all():
            canvas.scroll_into_view_if_needed()
            canvas.locator("svg").wait_for()
            kinds |= {*(canvas.get_attribute("class") or "").split()} - {"canvas"}
        assert (page.name, visit.wrong) == (page.name, [])
    assert {"drops", "spark", "flow", "heat", "steps", "known"} <= kinds
    visit.close()


def test_charts_follow_the_dark(pages: Path, started: Any) -> None:
    visit = opened(started, pages / "sources" / "meters.html")
    chart = visit.tab.locator(".canvas.drops").first
    chart.scroll_into_view_if_needed()
    label = chart.locator("svg text").first
    light = label.get_attribute("fill")
    visit.tab.emulate_media(color_scheme="dark")
    visit.tab.wait_for_function(
        "light => document.querySelector('.canvas.drops svg text').getAttribute('fill') != light", arg=light
    )
    visit.close()


def test_times_are_in_the_readers_zone_with_utc_beside_them(pages: Path, started: Any) -> None:
    visit = opened(started, pages / "sources" / "meters.html", timezone_id="Asia/Tokyo")
    time = visit.tab.locator("#frontiers + dl dt", has_text="reached").locator("xpath=../dd/time")
    assert (time.inner_text(), time.get_attribute("title")) == ("2024-01-03 09:00", "2024-01-03 00:00 UTC")
    assert "Times are in Asia/Tokyo" in visit.tab.locator("#zone").inner_text()
    visit.tab.get_by_role("button", name="Show UTC").click()
    assert time.inner_text() == "2024-01-03 00:00Z"
    visit.close()


def test_cards_are_filtered_by_name_owner_and_tag(pages: Path, started: Any) -> None:
    visit = opened(started, pages / "index.html")
    cards = visit.tab.locator(".card:visible h3")
    assert sorted(cards.all_inner_texts()) == ["meters", "ships"]
    visit.tab.get_by_label("Owner").select_option("harbour")
    assert cards.all_inner_texts() == ["ships"]
    assert visit.tab.locator("#shown").inner_text() == "1 of 2 shown"
    visit.tab.get_by_role("button", name="All").click()
    visit.tab.get_by_label("Tag").select_option("energy")
    assert cards.all_inner_texts() == ["meters"]
    visit.tab.get_by_label("Name").fill("SHIPS")
    assert cards.all_inner_texts() == []
    assert visit.wrong == []
    visit.close()


def test_wide_tables_say_that_they_scroll(pages: Path, started: Any) -> None:
    page = pages / "runs" / "meters" / "test-0-0.html"
    narrow, wide = opened(started, page, 1), opened(started, page, 0)
    hint = "getComputedStyle(document.querySelector('[aria-label=Files]'), '::before').content"
    assert "scroll sideways" in narrow.tab.evaluate(hint)
    assert "scroll sideways" not in wide.tab.evaluate(hint)
    narrow.close()
    wide.close()


def test_without_scripts_a_page_has_its_numbers(pages: Path, started: Any) -> None:
    visit = opened(started, pages / "sources" / "meters.html", java_script_enabled=False)
    visit.tab.locator("details.numbers summary").first.click()
    table = visit.tab.get_by_role("region", name="What came, by drop, numbers")
    assert table.get_by_role("row").nth(1).inner_text().split() == ["2024-01-02", "2", "1"]
    assert visit.tab.locator(".canvas:visible").count() == 0
    visit.open((pages / "index.html").as_uri())
    assert "5 rows, 1 of them late" in visit.tab.locator("main").inner_text()
    assert visit.wrong == []
    visit.close()
