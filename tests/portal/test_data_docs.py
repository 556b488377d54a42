"""Great Expectations' Data Docs in a real browser without a network: they fetch nothing, say what was found, and their
index lists every result."""

from __future__ import annotations

from pathlib import Path

import pytest

from expectations import GATES
from spark_jobs.config import Settings
from spark_jobs.gates import GateFailed, build_data_docs, data_docs_index, run_gate
from spark_jobs.portal.docs import docs_file, docs_of_run
from tests.portal.browser import SIZES, Visit, browser
from tests.portal.conftest import sound

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The docs of a sound run, and of one that fails at silver."""
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    for gate in GATES:
        run_gate(gate, sound(gate), settings=settings, source="flights", run_id="sound")
    first = next(invariant for invariant in GATES["silver"] if invariant.bound == "none")
    with pytest.raises(GateFailed) as refusal:
        run_gate("silver", sound("silver") | {first.measure: 1}, settings=settings, source="flights", run_id=EVIL)
    assert settings.page_url("runs", "flights", EVIL) in str(refusal.value)
    build_data_docs(settings)
    return data_docs_index(settings).parent


def test_no_page_names_a_place_on_the_internet_but_as_a_link(docs: Path) -> None:
    pages = sorted(docs.rglob("*.html"))
    assert len(pages) == 1 + len(GATES) + len(GATES) + 1
    for page in pages:
        text = page.read_text()
        assert "<script" not in text and 'src="http' not in text and "url(http" not in text
        assert 'rel="stylesheet"' not in text


@pytest.mark.turns
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_page_opens_quietly_and_says_what_was_found(docs: Path, size: tuple[int, int]) -> None:
    with browser() as started:
        visit = Visit(started, size)
        for page in sorted(docs.rglob("*.html")):
            visit.open(page.as_uri())
            name = str(page.relative_to(docs))
            assert (name, visit.wrong, visit.overflow(), visit.faults()) == (name, [], 0, [])
        visit.open((docs / "index.html").as_uri())
        shown = visit.tab.inner_text("main")
        assert shown.count("sound") == len(GATES) and "-script-alert" in shown
        visit.follow(visit.tab.get_by_role("link", name="silver").first)
        assert visit.tab.get_by_text(GATES["silver"][0].guarantee).first.is_visible()
        visit.close()


def test_a_failed_result_shows_the_expectation_that_failed(docs: Path) -> None:
    (failed,) = [page for page in docs.rglob("*.html") if "alert" in str(page)]
    text = failed.read_text()
    assert "Failed" in text and GATES["silver"][0].guarantee.split("'")[0] in text


def test_a_run_leads_to_the_pages_of_its_own_source(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    for source in ("flights", "ships", "flights_2"):
        run_gate("silver", sound("silver"), settings=settings, source=source, run_id="scheduled-1")
    build_data_docs(settings)
    for source in ("flights", "ships", "flights_2"):
        ((suite, path),) = docs_of_run(settings, source, "scheduled-1")
        assert suite == "silver" and path.endswith(f"-{source}.html")
        assert docs_file(settings, path) is not None
    assert docs_of_run(settings, "trains", "scheduled-1") == []
