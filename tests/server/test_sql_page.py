"""The requests of the SQL page, and the page in a real browser, on a real lake server with a published source."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from spark_jobs.config import Settings
from spark_jobs.portal.local import LocalPortal
from spark_jobs.server.thrift_client import thrift_query
from tests.installations import Installation, free_port, until
from tests.jobs.harness import SOURCE, Reading, write_drops
from tests.portal.browser import SIZES, browser
from tests.portal.sql_tab import SqlTab, serving
from tests.server.clients import FOR_LONG

pytestmark = [pytest.mark.server, pytest.mark.turns(together=True), pytest.mark.timeout(900)]

EVIL = '<img src=x onerror=alert(1)><script>alert(2)</script> & "more" \''
HOSTILE = EVIL.replace("'", "\\'")
LIMITS = {"reader_rows": 20_000, "reader_statements": 6}
NIGHT = 24 * 60
PAGE = {"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}
AFTER_FIRST = "2024-01-01T23:59:59.999999"
"""The time of the first publication; a second one follows, which changes a window."""

Post = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A lake with two publications of a source, and a table of the reader's whose texts try to be markup."""
    home = tmp_path_factory.mktemp("sql")
    installed = Installation(home, sources=home / "sources", landing=home / "landing", **LIMITS)
    with installed.serving("--no-airflow"):
        installed.settings.sources.mkdir()
        (installed.settings.sources / "meters.yml").write_text(SOURCE)
        write_drops(installed.settings, [Reading(0, 10 + 7 * i, "xyz"[i % 3], i) for i in range(9)])
        for day in ("2024-01-01", "2024-01-02"):
            if day.endswith("02"):
                write_drops(installed.settings, [Reading(1, 30, "x", 5), Reading(1, NIGHT + 30, "y", 7)])
            installed.json("run", "meters", "--from", day, "--to", day)
        for statement in (
            f"CREATE TABLE scratch_reader.evil (text STRING COMMENT '{HOSTILE}', n INT) USING delta",
            f"INSERT INTO scratch_reader.evil VALUES ('{HOSTILE}', 1), (NULL, 2), (repeat('long ', 100), 1234567)",
        ):
            thrift_query(installed.settings, statement, timeout_s=120)
        yield installed


@contextmanager
def posting(address: str, entrance: str | None) -> Iterator[Post]:
    with httpx.Client(trust_env=False, timeout=120) as client:
        if entrance is not None:
            client.get(entrance)

        def post(action: str, *, timeout: float = 120, **values: Any) -> httpx.Response:
            body = json.dumps({"tab": "a tab", **values})
            return client.post(f"{address}/sql/{action}", content=body, headers=PAGE, timeout=timeout)

        yield post


@contextmanager
def behind_airflow(settings: Settings) -> Iterator[str]:
    """The address of the page's requests as Airflow's API server has them, with a user who has logged in."""
    import uvicorn
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from starlette.applications import Starlette

    from spark_jobs.portal.sql.behind_airflow import sql_route
    from spark_jobs.portal.sql.desk import SqlDesk

    async def identify(_: Any) -> Any:
        return SimpleAuthManagerUser(username="somebody", role="viewer")

    app = Starlette(routes=[sql_route(SqlDesk(settings, lambda _: False, dict), identify, lambda _: True, {})])
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, 60)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module", params=["loopback", "airflow"])
def post(request: pytest.FixtureRequest, lake: Installation) -> Iterator[Post]:
    """Ask as the page does, with and without Airflow."""
    if request.param == "loopback":
        with serving(lake.settings) as served, posting(served.address, served.url) as asked:
            yield asked
    else:
        with behind_airflow(lake.settings) as address, posting(address, None) as asked:
            yield asked


def run(post: Post, statement: str, **values: Any) -> dict[str, Any]:
    answer = post("run", statement=statement, **values)
    assert "rows" in answer.json(), answer.text
    return answer.json()


def test_a_result_has_names_types_and_exact_values(post: Post) -> None:
    result = run(
        post, "SELECT 9007199254740993 AS big, CAST(NULL AS INT) AS none, 'a' AS t, 1.5D AS d, array(1, 2) AS l;"
    )
    assert [(each["name"], each["type"]) for each in result["columns"]] == [
        ("big", "bigint"),
        ("none", "int"),
        ("t", "string"),
        ("d", "double"),
        ("l", "array"),
    ]
    assert result["rows"] == [["9007199254740993", None, "a", "1.5", "[1,2]"]]
    assert (result["more"], result["past"], result["present"]) == (False, [], [])


def test_the_page_has_the_first_rows_and_csv_has_all(post: Post) -> None:
    statement = "SELECT id, concat('a, \"b\" ', id) AS t FROM range(3000) ORDER BY id"
    result = run(post, statement)
    assert len(result["rows"]) == 1000 and result["more"]
    assert run(post, "SELECT id FROM range(1000)")["more"] is False
    answer = post("csv", statement=statement)
    assert answer.headers["content-type"].startswith("text/csv")
    rows = [*csv.reader(answer.text.splitlines())]
    assert rows[0] == ["id", "t"] and len(rows) == 3001
    assert rows[-1] == ["2999", 'a, "b" 2999']


def test_long_values_end_the_shown_rows(post: Post) -> None:
    result = run(post, "SELECT repeat('x', 1000000) AS t FROM range(100)")
    assert result["more"] and 0 < len(result["rows"]) < 20


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("SELECT * FROM trace.published", "not_allowed: expected a statement that the role reader may run"),
        ("DROP VIEW silver.hourly", "not_allowed: "),
        ("SELEC 1", "sql_refused: expected a statement that Spark accepts, found [PARSE_SYNTAX_ERROR]"),
        ("SELECT nothing FROM silver.hourly", "found [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column"),
        ("SELECT assert_true(false)", "[USER_RAISED_EXCEPTION] 'false' is not true!"),
        ("SELECT * FROM marts.no_such", "marts.no_such is not built"),
        ("SELECT 1; SELECT 2", "found 2 statements"),
        (" -- nothing\n", "found 0 statements"),
    ],
)
def test_a_refusal_is_a_sentence_and_no_stack(post: Post, statement: str, sentence: str) -> None:
    error = post("run", statement=statement).json()["error"]
    assert sentence in error
    assert not re.search(r"Exception|\bat org\.|\bjava\.|'Project", error), error


def test_a_limit_of_readers_is_said(post: Post) -> None:
    answer = post("csv", statement="SELECT id FROM range(30000)")
    assert answer.json()["error"].startswith("limit_rows: ")


def test_tables_are_read_as_known_at_a_time(post: Post) -> None:
    statement = "SELECT sum(h.n) AS n FROM silver.hourly h CROSS JOIN (SELECT count(*) FROM bronze.quarantine)"
    now = run(post, statement)
    past = run(post, statement, as_of=AFTER_FIRST)
    assert int(past["rows"][0][0]) < int(now["rows"][0][0])
    assert (past["past"], past["present"]) == (["silver.hourly"], ["bronze.quarantine"])
    assert "`silver`.`hourly_as_of`(TIMESTAMP '2024-01-01 23:59:59.999999Z') h" in past["statement"]
    assert run(post, "SELECT count(*) FROM gold.meters", as_of=AFTER_FIRST)["past"] == ["gold.meters"]
    # these functions take a source, too
    assert run(post, "SELECT count(*) FROM silver.late, gold.state", as_of=AFTER_FIRST)["present"] == [
        "silver.late",
        "gold.state",
    ]
    early = post("run", statement=statement, as_of="2023-01-01T00:00")
    assert early.json()["error"].startswith("before_first_publication: expected a time")


def test_names_are_those_that_a_reader_may_read(post: Post) -> None:
    names = post("names").json()
    assert {"hourly", "shifts", "late"} <= {*names["tables"]["silver"]} and "meters" in names["tables"]["gold"]
    assert not [name for tables in names["tables"].values() for name in tables if name.endswith("_history")]
    assert "published" not in names["tables"]["trace"] and "evil" in names["tables"]["scratch_reader"]
    assert {"silver.hourly_as_of", "gold.meters_as_of"} <= {*names["functions"]}
    columns = post("columns", tables=["silver.hourly", "bronze.files", "trace.published", EVIL]).json()
    assert [*columns] == ["silver.hourly", "bronze.files"]
    assert columns["silver.hourly"][0] == ["meter", "string", "Key: column meter of the file."]
    assert ["path", "string"] in [column[:2] for column in columns["bronze.files"]]


def cancelled(post: Post, action: str, statement: str) -> httpx.Response:
    """The answer to a statement that is cancelled as soon as it can be."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(post, action, statement=statement)
        until(lambda: post("cancel").status_code == 200 and asked.done(), 60)
        return asked.result()


def test_a_cancelled_statement_ends_in_the_server_too(post: Post) -> None:
    # more often than a reader may have statements open
    for _ in range(LIMITS["reader_statements"] + 1):
        answer = cancelled(post, "run", FOR_LONG)
        assert answer.json()["code"] == "statement_cancelled"
    assert run(post, "SELECT 1")["rows"] == [["1"]]


def test_rows_that_are_computed_as_they_are_fetched_are_cancelled_too(post: Post) -> None:
    one_task = "SELECT id FROM range(0, 1000000000000, 1, 1) WHERE hash(id) = 7"
    assert cancelled(post, "csv", one_task).json()["code"] == "statement_cancelled"


def test_a_statement_ends_with_the_browser(post: Post) -> None:
    for number in range(LIMITS["reader_statements"] + 1):
        with pytest.raises(httpx.ReadTimeout):
            post("run", statement=FOR_LONG, tab=f"tab {number}", timeout=4)
    until(lambda: post("run", statement="SELECT 1").json().get("rows") == [["1"]], 60)


def test_a_tab_has_one_statement(post: Post) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, "run", statement=FOR_LONG)
        until(lambda: post("run", statement="SELECT 1").status_code == 200 and first.done(), 60)
        assert first.result().json()["code"] == "statement_cancelled"


def test_without_a_server_the_answer_says_how_to_start_it(tmp_path: Path) -> None:
    installed = Installation(tmp_path, sources=tmp_path / "sources")
    installed.settings.sources.mkdir()
    installed.settings.logins_file.parent.mkdir(parents=True)
    installed.settings.logins_file.write_text("reader reader secret\n")
    with serving(installed.settings) as served, posting(served.address, served.url) as asked:
        for action in ("run", "names"):
            answer = asked(action, statement="SELECT 1")
            assert "`tidemark up`" in answer.json()["error"]
        installed.settings.logins_file.unlink()
        assert "`tidemark up`" in asked("names").json()["error"]
        assert asked("saved").json() == []


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def portal(lake: Installation) -> Iterator[LocalPortal]:
    with serving(lake.settings) as served:
        yield served


@pytest.fixture
def page(started: Any, portal: LocalPortal) -> Iterator[SqlTab]:
    opened = SqlTab(started, portal)
    opened.open()
    yield opened
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_page_fits_and_is_accessible(started: Any, portal: LocalPortal, size: tuple[int, int], scheme: str) -> None:
    opened = SqlTab(started, portal, scheme, size)
    opened.open()
    assert (opened.visit.faults(), opened.visit.overflow()) == ([], 0)
    opened.write("SELECT meter, window_start, n, total FROM silver.hourly ORDER BY window_start -- 'text'")
    opened.run()
    opened.tab.locator("#chart svg").wait_for()
    opened.tab.locator("#browser").evaluate("each => { each.open = true; }")
    assert (opened.visit.faults(), opened.visit.overflow()) == ([], 0)
    opened.write("SELECT * FROM trace.published")
    opened.run()
    assert "not_allowed" in opened.tab.get_by_role("alert").inner_text()
    assert (opened.visit.faults(), opened.visit.overflow()) == ([], 0)
    opened.close()


def test_a_table_is_browsed_and_its_rows_are_drawn(page: SqlTab) -> None:
    page.tab.get_by_label("columns of silver.hourly", exact=True).click()
    page.tab.get_by_text("Key: column meter of the file.").first.wait_for()
    page.tab.get_by_role("button", name="hourly", exact=True).click()
    assert page.text() == "SELECT *\nFROM silver.hourly\nLIMIT 100"
    page.run()
    rows = page.tab.get_by_role("region", name="Rows").get_by_role("row")
    assert rows.nth(0).inner_text().startswith("meter\nstring")
    page.tab.locator("#chart svg").wait_for()
    page.tab.locator("#chart-kind").select_option("bar")
    page.tab.get_by_role("checkbox", name="high").check()
    assert "high by window_start" in page.tab.locator("#chart figcaption").inner_text()


def test_a_row_of_a_published_table_leads_to_its_reasons(page: SqlTab) -> None:
    page.write("SELECT count(*) AS n FROM silver.hourly")
    page.run()
    assert page.tab.get_by_role("link", name="why").count() == 0
    page.write("SELECT n, meter, window_start FROM silver.shifts WHERE meter = 'x' ORDER BY n DESC LIMIT 1")
    page.run()
    page.tab.get_by_role("link", name="why").first.click()
    page.tab.wait_for_url("**/why/meters/shifts/x~~*")
    # a row of the second drop was late for it
    assert page.tab.get_by_text("meters/2024-01-02/").count() > 0
    page.tab.go_back()
    page.tab.locator("#tables li").first.wait_for(state="attached", timeout=120_000)


def test_completion_offers_tables_columns_and_aliases(page: SqlTab) -> None:
    offered = page.tab.locator(".cm-tooltip-autocomplete li")
    page.write("SELECT * FROM silver.")
    page.tab.keyboard.press("Control+Space")
    offered.filter(has_text="hourly_as_of").wait_for()
    page.write("SELECT * FROM silver.hourly h WHERE h.")
    page.tab.keyboard.press("Control+Space")
    offered.filter(has_text="window_start").wait_for()
    page.tab.keyboard.press("Escape")
    page.tab.keyboard.type("met")
    offered.filter(has_text="meter").wait_for()
    page.tab.keyboard.press("Control+Space")
    page.tab.wait_for_timeout(200)  # a completion that has just come is not taken by a key
    page.tab.keyboard.press("Enter")
    assert page.text() == "SELECT * FROM silver.hourly h WHERE h.meter"
    page.tab.keyboard.press("Tab")
    assert page.tab.evaluate("document.activeElement.id") == "run"


def test_the_past_is_a_control_and_a_link_has_both(page: SqlTab, started: Any, portal: LocalPortal) -> None:
    page.write("SELECT sum(n) AS n FROM silver.hourly, (SELECT count(*) FROM bronze.quarantine)")
    page.tab.get_by_label("As known at (UTC)").fill("2024-01-02T12:00")
    page.tab.get_by_role("textbox", name="SQL statement").click()
    page.run()
    assert page.tab.locator("#error").inner_text() == ""
    assert page.tab.locator("#read").inner_text() == (
        "Read as known at 2024-01-02 12:00 UTC: silver.hourly."
        " Read as it is now, since it has no past to ask for: bronze.quarantine."
    )
    page.tab.get_by_text("The statement that ran").click()
    assert "`hourly_as_of`(TIMESTAMP '2024-01-02 12:00:00Z')" in page.tab.locator("#ran pre").inner_text()
    page.tab.get_by_role("button", name="Link to share").click()
    link = page.tab.locator("#shared input").input_value()
    assert link.partition("#")[0] == f"{portal.address}/sql.html"
    second = SqlTab(started, portal)
    second.open(f"#{link.partition('#')[2]}")
    assert second.text() == page.text()
    assert second.tab.get_by_label("As known at (UTC)").input_value() == "2024-01-02T12:00"
    assert not second.tab.locator("#result").is_visible(), "nothing runs before somebody has looked at it"
    assert [url for url in second.asked if "quarantine" in url.partition("#")[0]] == []
    second.close()


def test_csv_is_a_file_with_all_rows(page: SqlTab, tmp_path: Path) -> None:
    page.write("SELECT id FROM range(1500)")
    with page.tab.expect_download() as download:
        page.tab.get_by_role("button", name="CSV of all rows").click()
    download.value.save_as(tmp_path / "rows.csv")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 1501


def test_a_statement_is_cancelled_by_its_button(page: SqlTab) -> None:
    page.write(FOR_LONG)
    page.tab.get_by_role("button", name="Run", exact=True).click()
    page.tab.get_by_role("button", name="Cancel").click()
    page.tab.get_by_text("Cancelled.").wait_for(timeout=60_000)


def test_a_query_is_saved_opened_and_deleted(page: SqlTab) -> None:
    page.write("SELECT 1 AS one")
    page.tab.get_by_label("Name", exact=True).fill("one & only")
    page.tab.get_by_role("button", name="Save for all users").click()
    page.tab.get_by_text("a name of up to 80").wait_for()
    page.tab.get_by_label("Name", exact=True).fill("one (1)")
    page.tab.get_by_role("button", name="Save for all users").click()
    page.tab.get_by_role("button", name="one (1)", exact=True).wait_for()
    page.write("SELECT 2")
    page.tab.get_by_role("button", name="Save for all users").click()
    page.tab.get_by_role("button", name="Replace it for all users").click()
    page.tab.get_by_role("button", name="Save for all users").wait_for()
    page.write("SELECT 3")
    page.tab.get_by_role("button", name="one (1)", exact=True).click()
    assert page.text() == "SELECT 2"
    page.tab.get_by_role("button", name="Delete one (1)").click()
    page.tab.get_by_role("button", name="Delete one (1)").click()
    page.tab.get_by_role("button", name="one (1)", exact=True).wait_for(state="detached")


def test_hostile_texts_stay_texts(page: SqlTab, lake: Installation) -> None:
    folder = lake.settings.home / "queries"
    folder.mkdir(exist_ok=True)
    (folder / "evil.sql").write_text(f"-- saved by {EVIL} at 2024-01-01T00:00:00Z\nSELECT 1 -- {EVIL}\n")
    page.open(f"#statement={httpx.QueryParams({'': f'SELECT 1 -- {EVIL}'})}".replace("#statement==", "#statement="))
    page.tab.reload()  # an address that differs in its fragment alone is no new page
    page.tab.locator("#saved li").first.wait_for()
    assert EVIL in page.text()
    assert page.tab.locator("#saved").inner_text().count(EVIL) == 1
    page.tab.locator("#tables summary", has_text="scratch_reader").click(timeout=60_000)
    page.tab.get_by_label("columns of scratch_reader.evil").click()
    page.tab.locator("#tables small", has_text=EVIL).wait_for()
    page.write(f"SELECT text, n AS `{EVIL}` FROM scratch_reader.evil ORDER BY n")
    page.run()
    table = page.tab.get_by_role("region", name="Rows")
    assert EVIL in table.get_by_role("columnheader").nth(1).inner_text()
    cells = table.get_by_role("cell")
    assert cells.nth(0).inner_text().startswith(EVIL[:40])
    assert cells.nth(2).inner_text() == "–" and cells.nth(5).inner_text() == "1,234,567"
    page.tab.locator("#chart svg").wait_for()
    assert EVIL in page.tab.locator("#chart figcaption").inner_text()
    page.write(f"SELECT `{EVIL}`")
    page.run()
    assert EVIL in page.tab.get_by_role("alert").inner_text()
    assert page.tab.locator("main img, main script:not([type='application/json'])").count() == 0
    (folder / "evil.sql").unlink()
