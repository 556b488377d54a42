"""Charts and values of pages: hostile texts stay text, numbers have units, and time alone makes a source late."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment
from markupsafe import Markup

from spark_jobs.config import Settings
from spark_jobs.portal.asking import MOST_PAGES, PAGED, PageMissing, page_of_list
from spark_jobs.portal.changes import Change, with_components
from spark_jobs.portal.charts import Chart, Series, drops_chart, finite, heat_chart, planned_chart
from spark_jobs.portal.flow import run_flow
from spark_jobs.portal.freshness import freshness_of
from spark_jobs.portal.late_rows import duration
from spark_jobs.portal.links import Links
from spark_jobs.portal.markup import cell, markup, term
from spark_jobs.portal.pages import Portal
from spark_jobs.portal.runs import WholeRun
from spark_jobs.sources import Source, find_source
from tests.jobs.harness import DAY, SOURCE, START, write_source

EVIL = "</script><script>alert('x')</script> & \"more\" <!--"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    dag = "dag: {owner: ops, tags: [a, b], deadline: 2 h, notify: [a@example.org]}\n"
    return write_source(Settings(home=tmp_path_factory.mktemp("home")), SOURCE + dag)


@pytest.fixture(scope="module")
def source(settings: Settings) -> Source:
    return find_source(settings.sources, "meters")


def template(settings: Settings, text: str) -> Any:
    environment: Environment = Portal(settings, is_live=True)._templates
    return environment.from_string('{% from "parts.j2" import chart, grid %}' + text)


def test_hostile_texts_of_a_chart_stay_text(settings: Settings) -> None:
    chart = Chart(EVIL, "drops", EVIL, {"labels": [EVIL], EVIL: EVIL}, [EVIL, EVIL], [[EVIL, EVIL]])
    html = template(settings, "{{ chart(each, links) }}").render(each=chart, links=Links("index.html"))
    assert html.count("<script") == html.count("</script>") == 1 and "<!--" not in html
    (data,) = re.findall(r'<script type="application/json" data-kind="drops">(.*?)</script>', html, re.DOTALL)
    assert json.loads(data) == chart.data


def test_a_chart_has_its_numbers_as_a_sentence_and_as_a_table(source: Source) -> None:
    rows = Series("Rows", "rows", {0: 1200, 2: 3})
    chart = drops_chart("What came", [rows, Series("Late rows", "rows", {})], source)
    assert chart is not None
    assert chart.summary == (
        "Rows per drop: 3 drops from 2024-01-01 to 2024-01-03, 1,203 rows, most 1,200 in 2024-01-01"
    )
    assert chart.data["labels"] == ["2024-01-01", "2024-01-02", "2024-01-03"]
    assert [each["values"] for each in chart.data["series"]] == [[1200, None, 3]]
    assert (chart.columns, chart.rows) == (["drop", "Rows (rows)"], [["2024-01-03", 3], ["2024-01-01", 1200]])
    assert drops_chart("nothing", [Series("Rows", "rows", {})], source) is None


def test_a_heat_map_counts_by_drop_and_class(source: Source) -> None:
    chart = heat_chart("How late", "rows", ("soon", "late"), {(1, 0): 2, (3, 1): 5}, source)
    assert chart is not None
    assert chart.data["cells"] == [[0, 0, 2], [2, 1, 5]]
    assert chart.summary == "How late: 2 soon, 5 late rows"
    assert chart.rows == [["2024-01-04", 0, 5], ["2024-01-02", 2, 0]]
    assert heat_chart("How late", "rows", ("soon",), {}, source) is None


def test_a_run_that_takes_rows_back_has_a_flow_with_widths(source: Source) -> None:
    file = {"path": "a.ndjson", "rows": 0, "rows_back": 3, "rejects": 0, "duplicates": 0}
    run = WholeRun("retract-1", files=[file | dict.fromkeys(("rejects_back", "duplicates_back"), 0)])
    run.manifest = {"stages": [{"accounts": {"hourly": {"accepted": -3}}}]}
    change = Change("silver.hourly", ("meter",), 0, 0, 2, [])
    flow = run_flow(run, [change], [], Links("runs/meters/retract-1.html"), source)
    assert flow is not None
    # Chromium draws no path of a negative width
    assert [link["weight"] for link in flow.data["links"]] == [3, 3, 3]
    assert [node["label"] for node in flow.data["nodes"]] == [
        "files",
        "rows taken back",
        "hourly: in windows",
        "silver.hourly",
    ]


def test_a_plan_stands_beside_what_the_run_did() -> None:
    change = Change("silver.hourly", ("meter",), 3, 1, 0, [])
    plan = {"plan_id": "p", "counts": {"silver.hourly": {"inserted": 2, "changed": 1, "removed": 0}}}
    chart = planned_chart([change], plan)
    assert chart is not None and chart.rows == [["silver.hourly", 3, 4]]
    assert planned_chart([change], None) is None


def test_values_are_times_numbers_and_long_texts() -> None:
    time = datetime(2024, 1, 2, 3, 4, tzinfo=UTC)
    assert markup(time) == Markup('<time datetime="2024-01-02T03:04:00+00:00">2024-01-02 03:04Z</time>')
    assert markup(markup(time)) == markup(time)
    assert cell(1234567) == Markup('<td class="num">1,234,567</td>')
    assert cell(True) == Markup("<td>yes</td>")
    long = markup("<b>" + "x" * 100)
    assert long.startswith('<details class="long"><summary>&lt;b&gt;xxx') and "x" * 100 in long
    assert finite(float("nan")) is None and finite(2.5) == 2.5
    assert [duration(us) for us in (None, 59_000_000, 3_600_000_000, 90_060_000_000)] == [
        "–",
        "under 1 min",
        "1 h",
        "1 d 1 h",
    ]


def test_words_are_explained_where_there_is_a_glossary() -> None:
    word = term("late rows", Links("sources/meters.html"))
    assert word.startswith('<a class="word" href="../glossary.html#late-row" title="A row is late for a')
    assert term("late rows", Links("", is_alone=True)) == "late rows"
    assert term(EVIL, Links("index.html")) == Markup.escape(EVIL)


def test_a_source_becomes_late_by_time_alone(source: Source) -> None:
    reached = START + 3 * DAY
    fresh = freshness_of(source, reached, reached + timedelta(hours=25))
    assert (fresh.next_drop, fresh.due, fresh.is_late) == ("2024-01-04", reached + timedelta(hours=26), False)
    late = freshness_of(source, reached, reached + timedelta(hours=27))
    assert late.is_late and late.behind == 1
    assert freshness_of(source, reached, reached + 5 * DAY).behind == 5
    nothing = freshness_of(source, None, reached)
    assert nothing.due is None and not nothing.is_late


def test_long_lists_have_pages() -> None:
    records = list(range(PAGED * 2 + 1))
    assert page_of_list(records, "1", "x").records == records[:PAGED]
    last = page_of_list(records, "3", "x")
    assert (last.records, last.pages, last.total) == ([records[-1]], 3, len(records))
    for wrong in ("0", "4", "x", "-1", "²", ""):
        with pytest.raises(PageMissing):
            page_of_list(records, wrong, "x")
    endless = page_of_list(list(range(PAGED * MOST_PAGES + 7)), "1", "x")
    assert endless.total - endless.listed == 7
    assert page_of_list([], "1", "x").records == []


def test_a_state_is_shown_by_its_components(source: Source) -> None:
    row = {"entity": "a", "ints": [3, 40], "floats": None, "names": ["readings", "load"], "seen": [True, True]}
    assert with_components(source, row) == {"entity": "a", "readings": 3, "load": 40}
    assert with_components(source, {"meter": "a", "n": 1}) == {"meter": "a", "n": 1}


def test_every_page_fetches_only_what_is_beside_it(settings: Settings, tmp_path: Path) -> None:
    page = Portal(settings, is_live=True).page("sources/meters.html")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["form-action"] == "'self'"
    assert "unsafe" not in policy[1]
