"""The pages of a lake whose texts try to be markup: all of them stand as text, every link leads somewhere, and what a
person looks for is found from the first page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.portal.pages import PageMissing, Portal, Scope
from tests.portal.conftest import EVIL

pytestmark = pytest.mark.spark

VOID = {"meta", "link", "rect", "input", "br"}


class Page(HTMLParser):
    """Tags, links, and all text of a page; fails where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag
        if tag in ("td", "th"):
            self.texts.append(" ")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def pages_of(site: Path) -> dict[str, Page]:
    found = [path for path in site.rglob("*.html") if "docs" not in path.relative_to(site).parts]
    return {str(path.relative_to(site)): Page(path.read_text()) for path in found}


def test_every_link_leads_to_a_page_and_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = pages_of(site)
    assert {"index.html", "glossary.html", "marts.html", "sources/meters.html", "runs/meters/test-0-0.html"} <= {*pages}
    for name, page in pages.items():
        assert "script" not in page.tags
        for link in page.links:
            if link not in ("data:,", "#content"):
                assert ":" not in link, (name, link)
                assert (site / name).parent.joinpath(unquote(link)).exists(), (name, link)


def test_a_source_plots_what_is_measured_of_its_drops(site: Path) -> None:
    plots = re.findall(r'aria-label="([^"]+ per drop[^"]*)"', (site / "sources" / "meters.html").read_text())
    told = {plot.partition(":")[0] for plot in plots}
    assert {"Rows per drop", "Late rows per drop", "Rejected records per drop", "Bytes per drop"} <= told
    assert any(name.startswith("Greatest delay per drop") for name in told)
    (delay,) = [plot for plot in plots if plot.startswith("Greatest delay")]
    # the row of 23:40 landed with the next day's drop
    assert "most 20 in 2024-01-02" in delay


def test_texts_of_the_data_stand_as_they_are(site: Path) -> None:
    pages = pages_of(site)
    holders = {name for name, page in pages.items() if "<script>" in page.text}
    assert {
        "runs/meters/test-0-0.html",
        "runs/meters/test-3-3.html",
        "quarantine/meters.html",
        "marts/meter_hours.html",
    } <= holders
    assert any(name.startswith("why/meters/hourly/") for name in holders)
    assert EVIL in pages["runs/meters/test-3-3.html"].text
    for path in site.rglob("*.html"):
        assert "<script>alert" not in path.read_text()


def test_the_first_page_says_what_needs_a_person(home: Settings, site: Path) -> None:
    text = pages_of(site)["index.html"].text
    assert "the last run failed at silver: total_is_small; what it published stands" in text
    assert "1 record in quarantine" in text
    assert "1 drop never run" in text
    assert "the last audit found 2 invariants that the lake breaks" in text and "2 invariants broken" in text
    assert "1 erasure interrupted, and runs wait for the end" in text
    assert re.search(r"dev\s+meters\s+changed\s+not built", text), "what an environment changes"
    # maintenance came after the run that failed, and is no run of drops
    assert "the last run has published nothing" not in text
    assert "nothing new" in pages_of(site)["runs/meters/maintain.html"].text
    drops = pages_of(site)["sources/meters.html"].text
    assert re.search(r"erasure-1\s+meter\s+begun", drops)
    assert "2024-01-03" in (site / "sources" / "meters.html").read_text() and "never run" in drops


def test_why_leads_from_a_mart_to_file_and_line(site: Path) -> None:
    pages = pages_of(site)
    whys = [link for link in pages["marts/meter_hours.html"].links if "why/" in link]
    assert whys
    for link in whys:
        why = pages[link.removeprefix("../")]
        assert "The lines behind it" in why.text
        assert re.search(r"meters/2024-01-0\d/<script>alert\(1\)<&script>\.ndjson", why.text)
        assert any(link.endswith(".html") and "runs/meters/test-" in link for link in why.links)
        assert "../../../marts/meter_hours.html" in why.links


def test_quarantine_gives_record_reason_and_commands(site: Path) -> None:
    text = pages_of(site)["quarantine/meters.html"].text
    assert f'{{"id": "{EVIL[:8]}", "meter": 3' in text
    for command in (
        "replay meters --rule",
        "dismiss meters --rule",
        "replay meters --file 'meters/2024-01-02/<script>",
    ):
        assert f"tidemark quarantine {command}" in text


def test_a_run_tells_what_it_landed_checked_and_changed(site: Path) -> None:
    text = pages_of(site)["runs/meters/test-1-1.html"].text
    assert "What holds: " in text and "What it changed" in text and "silver.shifts" in text
    # the late row at 23:40 goes on with the session of 23:30: one row changed
    assert re.search(r"silver\.shifts 1 1 0", text)


def test_who_may_not_see_a_source_sees_nothing_of_it(home: Settings) -> None:
    portal = Portal(home, is_live=True)
    nobody = Scope(lambda _: False)
    for name in ("index.html", "marts.html"):
        text = Page(portal.page(name, scope=nobody)).text
        assert "meters" not in text and "meter_hours" not in text
    for name in (
        "sources/meters.html",
        "runs/meters/test-0-0.html",
        "quarantine/meters.html",
        "marts/meter_hours.html",
    ):
        portal.page(name)
        with pytest.raises(PageMissing):
            portal.page(name, scope=nobody)
    assert "<form" in portal.page("sources/meters.html")


@pytest.mark.parametrize("name", ["nothing.html", "sources/.html", "sources/ships.html", "marts/..html"])
def test_a_page_that_is_not_there_is_named(home: Settings, name: str) -> None:
    with pytest.raises((PageMissing, ParameterError)):
        Portal(home, is_live=True).page(f"{name}.html")


def test_who_may_not_see_a_source_sees_nothing_of_its_broken_file(home: Settings, tmp_path: Path) -> None:
    for file in home.sources.glob("*.yml"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "ships.yml").write_text("source: [")
    portal = Portal(home.model_copy(update={"sources": tmp_path}), is_live=True)
    assert "ships" in Page(portal.page("index.html")).text
    text = Page(portal.page("index.html", scope=Scope(lambda name: name == "meters"))).text
    assert "ships" not in text and "meters" in text


def test_a_form_asks_why(home: Settings) -> None:
    asked = {"meter": ["a"], "window_start": [" 2024-01-01T23:30:00Z "], "other": ["x"]}
    text = Page(Portal(home, is_live=True).page("why/meters/shifts.html", asked)).text
    assert "Revision 1, published now" in text and "The lines behind it" in text


def test_the_report_is_one_file_that_links_to_nothing(home: Settings) -> None:
    portal = Portal(home, is_live=False)
    page = Page(portal.report(portal.sources()["meters"]))
    assert {*page.links} == {"data:,", "#content"}
    for heading in ("Drops", "Frontiers", "Quarantine", "Lateness", "Windows", "Chains", "Runs"):
        assert heading in page.text
