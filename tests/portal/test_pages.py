"""The pages of a lake whose texts try to be markup: all of them stand as text, every link leads somewhere, and what a
person looks for is found from the first page."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.portal.asking import PageMissing, VisibleSources
from spark_jobs.portal.pages import Portal
from tests.portal.conftest import EVIL

VOID = {"meta", "link", "rect", "input", "br"}


class Page(HTMLParser):
    """Tags, links, and all text of a page; fails where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.links: list[str] = []
        self.ids: set[str | None] = set()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids |= {value for name, value in attrs if name == "id"}
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]
        if tag == "script":
            self.scripts += ["src" if name == "src" else str(value) for name, value in attrs if name in ("src", "type")]
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
        assert {*page.scripts} <= {"src", "application/json"}, name
        for link in page.links:
            if link.startswith("#"):
                assert link[1:] in page.ids, (name, link)
            elif link != "data:,":
                assert ":" not in link, (name, link)
                path, _, anchor = unquote(link).partition("#")
                assert (site / name).parent.joinpath(path).exists(), (name, link)
                to = (site / name).parent.joinpath(path).resolve().relative_to(site.resolve())
                assert not anchor or anchor in pages[str(to)].ids, (name, link)


def test_no_link_is_a_dash(site: Path) -> None:
    for name in pages_of(site):
        assert not re.search(r"<a [^>]*>\s*–?\s*</a>", (site / name).read_text()), name


def charts_of(page: Path) -> dict[str, tuple[str, Any]]:
    """The charts of a page: by kind and title, each with its summary and its data."""
    pattern = (
        r'<figcaption>([^<]*)</figcaption>.*?aria-label="([^"]*)".*?<script type="application/json" data-kind="(\w+)">'
        r"(.*?)</script>"
    )
    found = re.findall(pattern, page.read_text(), re.DOTALL)
    return {f"{kind}: {unescape(title)}": (unescape(words), json.loads(data)) for title, words, kind, data in found}


def test_a_source_charts_what_is_measured_of_its_drops(site: Path) -> None:
    charts = charts_of(site / "sources" / "meters.html")
    words, came = charts["drops: What came, by drop"]
    assert [(each["title"], each["unit"]) for each in came["series"]][:3] == [
        ("Rows", "rows"),
        ("Late rows", "rows"),
        ("Rejected records", "records"),
    ]
    assert came["labels"] == ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]
    assert came["series"][1]["values"][:3] == [0, 1, None], "a late row counts once, a drop that never ran is a gap"
    assert "Late rows per drop: 4 drops from 2024-01-01 to 2024-01-04, 1 rows, most 1 in 2024-01-02" in words
    words, measured = charts["drops: What was measured, by drop"]
    assert {each["unit"] for each in measured["series"]} >= {"bytes", "minutes"}
    # the row of 23:40 landed with the next day's drop
    assert (
        "Greatest delay, from event to the start of the drop per drop: " in words and "most 20 in 2024-01-02" in words
    )


def test_lateness_is_a_distribution_over_time(site: Path) -> None:
    words, heat = charts_of(site / "sources" / "meters.html")["heat: How late rows were, by drop"]
    assert heat["labels"] == ["2024-01-02"] and heat["cells"] == [[0, 0, 1]]
    assert heat["classes"][0] == "up to 1 hour" and words.endswith("1 up to 1 hour rows")


def test_a_run_charts_the_way_of_its_records(site: Path) -> None:
    (of_run,) = [each for name, each in charts_of(site / "runs" / "meters" / "test-1-1.html").items() if "flow" in name]
    words, flow = of_run
    assert words == "1 file with 3 records: 2 rows, 1 record in quarantine, 0 duplicates"
    counts = {node["label"]: node["count"] for node in flow["nodes"]}
    assert counts["rows that count"] == 2 and counts["quarantine"] == 1 and counts["silver.shifts"] == 2
    assert "marts.meter_hours" in counts
    targets = {flow["nodes"][link["to"]]["href"] for link in flow["links"]} - {None}
    assert "../../marts/meter_hours.html" in targets and "../../quarantine/meters.html" in targets


def test_lineage_goes_from_files_to_marts(site: Path) -> None:
    charts = charts_of(site / "marts" / "meter_hours.html")
    _, flow = charts["flow: From files to marts.meter_hours"]
    edges = {(flow["nodes"][link["from"]]["label"], flow["nodes"][link["to"]]["label"]) for link in flow["links"]}
    assert {
        ("meters/{date}/*", "bronze.meters_deltas"),
        ("bronze.meters_deltas", "silver.hourly"),
        ("silver.hourly", "marts.meter_hours"),
    } <= edges


def test_a_state_is_shown_over_event_time_as_it_was_known(home: Settings) -> None:
    page = Portal(home, is_live=True).page("why/meters/meters/a.html")
    known = re.findall(r'data-kind="known">(.*?)</script>', page, re.DOTALL)
    readings, load = map(json.loads, known)
    assert readings["title"] == "readings" and load["title"] == "load"
    first, last = load["lines"][0], load["lines"][-1]
    # the reading of 23:40 came with the second drop: at first the state of that time was not known to include it
    assert (first["values"][-1], last["values"][-1]) == (8, 11)


def test_a_window_is_shown_as_steps_with_their_causes(home: Settings) -> None:
    page = Portal(home, is_live=True).page(
        "why/meters/shifts.html", {"meter": ["a"], "window_start": ["2024-01-01T23:30:00Z"]}
    )
    (steps,) = map(json.loads, re.findall(r'data-kind="steps">(.*?)</script>', page, re.DOTALL))
    assert {each["title"]: each["values"] for each in steps["series"]} == {"n": [1, 2, 2], "total": [1, 4, 4]}
    assert steps["notes"][1].startswith("revision 1: 1 came, meters/2024-01-02/")


def test_late_rows_are_listed_once_with_their_lines(site: Path) -> None:
    page = pages_of(site)["late/meters.html"]
    assert "1 row of silver.late" in page.text
    assert re.search(r"20 min .* a hourly: reemit meters/2024-01-02/.* 1 test-1-1", page.text), page.text
    assert [link for link in page.links if "runs/meters/test-1-1.html" in link]
    assert "why/meters/meters/a.html" in "".join(page.links), "the state of its entity"


def test_late_rows_are_listed_by_drop(home: Settings) -> None:
    portal = Portal(home, is_live=True)
    assert 'href="../late/meters/2024-01-02.html"' in portal.page("late/meters.html")
    page = portal.page("late/meters/2024-01-02.html")
    assert "in the drop 2024-01-02" in page
    assert "1 row of" in page
    assert "in the drop 2024-01-02" in portal.page("late/meters/2024-01-02/1.html")
    for name in ("late/meters/2024-01-01.html", "late/meters/2024-01-02/2.html", "late/meters/x/y.html"):
        with pytest.raises(PageMissing):
            portal.page(name)


def test_words_of_the_glossary_explain_themselves(site: Path) -> None:
    page = (site / "sources" / "meters.html").read_text()
    word = (
        r'<a class="word" href="../glossary.html#seal" title="The seal is the visible time below which [^"]*">seal</a>'
    )
    assert re.search(word, page)
    explained = {
        "index.html": [
            "in quarantine",
            "failing checks",
            "late rows",
            "last audit",
            "Sources",
            "Marts",
            "Environments",
        ],
        "sources/meters.html": ["Drops", "Frontiers", "Quarantine", "Lateness", "Windows", "Chains", "audit"],
        "runs/meters/test-1-1.html": ["drops", "Checks", "rejects", "duplicates"],
        "quarantine/meters.html": ["Quarantine"],
        "late/meters.html": ["Late rows", "event time", "entity"],
        "marts.html": ["Marts", "shows the publication", "let pass"],
        "marts/meter_hours.html": ["marts", "shows the publication"],
    }
    for name, words in explained.items():
        text = (site / name).read_text()
        for each in words:
            assert re.search(rf'<a class="word" href="[^"]+" title="[^"]+">{each}</a>', text), (name, each)


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
    assert re.search(r"\d+ checks hold", text) and "What it changed" in text and "silver.shifts" in text
    # the late row at 23:40 goes on with the session of 23:30: one row changed
    assert re.search(r"silver\.shifts 1 1 0", text)


def test_who_may_not_see_a_source_sees_nothing_of_it(home: Settings) -> None:
    portal = Portal(home, is_live=True)
    nobody = VisibleSources(lambda _: False)
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
    text = Page(portal.page("index.html", scope=VisibleSources(lambda name: name == "meters"))).text
    assert "ships" not in text and "meters" in text


def test_a_form_asks_why(home: Settings) -> None:
    asked = {"meter": ["a"], "window_start": [" 2024-01-01T23:30:00Z "], "other": ["x"]}
    text = Page(Portal(home, is_live=True).page("why/meters/shifts.html", asked)).text
    assert "Revision 1, published now" in text and "The lines behind it" in text


def test_the_report_is_one_file_that_links_to_nothing(home: Settings) -> None:
    portal = Portal(home, is_live=False)
    page = Page(portal.report(portal.sources()["meters"]))
    assert {*page.links} == {"data:,", "#content"}
    assert page.scripts == []
    for heading in ("Drops", "Frontiers", "Quarantine", "Lateness", "Windows", "Chains", "Runs"):
        assert heading in page.text
