"""dbt's own documentation: one file, written without a server, that opens without the internet and beside no cookie."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.portal.docs import DBT_DOCS, docs_file
from spark_jobs.portal.served import _APART
from spark_jobs.publish.dbt_docs import DocsFailed, write_dbt_docs
from spark_jobs.server.logins import ensure_logins
from tests.portal.browser import SIZES, Visit, browser

HEADERS = {"Content-Type": "text/html", **_APART}
PLACE = "http://portal.example/docs/dbt.html"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    settings.server_dir.mkdir(parents=True)
    ensure_logins(settings)
    return settings


@pytest.mark.turns
def test_the_portal_links_to_what_dbt_says_of_the_marts(settings: Settings) -> None:
    assert docs_file(settings, DBT_DOCS) is None
    file, _ = write_dbt_docs(settings)
    assert docs_file(settings, DBT_DOCS) == file
    # what the last build left, which pages and the next build read, is not touched
    assert not (settings.home / "dbt" / "target").exists()
    with browser() as started:
        for size in SIZES:
            visit = Visit(started, size, offline=False)
            asked: list[str] = []
            failed: list[str] = []
            visit.tab.on("request", lambda request, asked=asked: asked.append(request.url))
            visit.tab.on("pageerror", lambda error, failed=failed: failed.append(str(error)))
            visit.tab.route("**/*", lambda route: route.abort())
            visit.tab.route(PLACE, lambda route: route.fulfill(path=file, headers=HEADERS))
            visit.open(f"{PLACE}#!/model/model.tidemark.airport_delays")
            visit.tab.get_by_text("mean_delay").first.wait_for(timeout=60_000)
            assert (visit.tab.evaluate("self.origin"), failed) == ("null", [])
            # dbt's page asks for icons by the text of its templates, beside itself
            assert [url for url in asked if not url.startswith(("http://portal.example/docs/", "data:"))] == []
            visit.close()


def test_a_project_that_dbt_refuses_is_named(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "broken.sql").write_text("select {{ ref('no such model') }}")
    with pytest.raises(DocsFailed, match="no such model"):
        write_dbt_docs(settings.model_copy(update={"dbt": tmp_path}))
