"""The report's page: it is one file that fetches nothing, shows every value as text, and refuses an empty lake."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.pins import make_pin
from spark_jobs.jobs.report import LATE_BY, Report, as_html, source_report
from spark_jobs.reads.as_of import states_at
from spark_jobs.reads.point import NotPublished
from spark_jobs.reads.why import why
from spark_jobs.sources import load_source
from spark_jobs.storage.lake import Lake
from tests.jobs.harness import write_source

TIME = datetime(2024, 1, 3, tzinfo=UTC)
EVIL = "<script>alert('x')</script> & \"more\""
VOID = {"meta", "rect"}


class Page(HTMLParser):
    """Tags, attributes, and the text of every table cell; fails where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, set[str]] = {}
        self.cells: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value or "")
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("td", "th"):
            self.cells[-1] += data


def a_report() -> Report:
    frontiers = dict.fromkeys(("since", "complete", "published", "reached", "seal"), TIME)
    return Report(
        "meters",
        {"horizon": None, **frontiers},
        3,
        windows=[
            {"definition": "hourly", "windows": 1234, "first_start": TIME, "last_end": TIME, "final": 7, "restated": 2}
            | {"most_revisions": 1}
        ],
        late=[{"definition": None, "action": "below_horizon", "rows": 2, "newest": TIME}],
        lateness=[*((name, 0) for name in LATE_BY[:-1]), (LATE_BY[-1], 2)],
        chains={"chains": 5, "saved_bytes": {"sparse": 9}},
        drops=[{"drop": TIME, "files": 1, "rows": 10, "rejects": 1, "duplicates": 0}],
        publications=[{"known_from": TIME, "reached": TIME, "run_id": EVIL}],
        gates=[{"run_id": "r", "gate": "silver", "held": 12, "failed": [f"{EVIL} (rows: 3)"]}],
    )


def test_the_page_fetches_nothing_and_shows_every_value_as_text() -> None:
    text = as_html(a_report())
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object"} & {*page.tags}
    assert not {"src", "href", "onload"} & {*page.attributes}
    assert "http:" not in text and "https:" not in text and "url(" not in text
    assert {"1,234", "2024-01-03T00:00:00Z", EVIL, f"{EVIL} (rows: 3)", "below_horizon", "–"} <= {*page.cells}
    assert {"frontiers", "drops", "lateness", "windows", "chains", "gates"} <= page.attributes["id"]
    assert "svg" in page.tags


def test_what_a_source_has_not_is_said() -> None:
    bare = replace(a_report(), entities=None, windows=[], late=[], lateness=[], chains={}, gates=[])
    text = as_html(bare)
    assert "svg" not in Page(text).tags
    for sentence in ("No row was late.", "The source has no windows.", "The source keeps no chains."):
        assert sentence in text


@pytest.mark.spark
def test_a_lake_in_which_nothing_has_run_is_refused_by_name(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = write_source(spark_settings.model_copy(update={"home": tmp_path}))
    empty, source = Lake(lake), load_source(home.sources / "meters.yml")
    for read in (source_report, states_at, lambda *asked: why(*asked, "meters", ["a"])):
        with pytest.raises(NotPublished, match="something published of meters"):
            read(empty, source)
    with pytest.raises(NotPublished, match="something published of meters"):
        make_pin(empty, [source], "nothing")
    with pytest.raises(ParameterError, match="a source that has published"):
        make_pin(empty, [], "nothing")
