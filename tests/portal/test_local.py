"""The portal without Airflow, and the login by a link: each link works once, for its time, on the loopback alone."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import httpx
import pytest

from spark_jobs.cli.portal_login import LoginServer, page_that_leads
from spark_jobs.config import Settings
from spark_jobs.portal.local import LocalPortal, OneTimeLink
from tests.jobs.harness import write_source
from tests.portal.browser import SIZES, Visit, browser

TOKEN = "header.payload.signature"


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[LocalPortal]:
    docs = tmp_path / "quality" / "gx" / "uncommitted" / "data_docs"
    docs.mkdir(parents=True)
    (docs / "index.html").write_text("<p>the docs</p>")
    (tmp_path / "secret.html").write_text("a secret")
    served = LocalPortal(write_source(Settings(home=tmp_path)))
    thread = Thread(target=served.serve)
    thread.start()
    yield served
    served.close()
    thread.join()


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False) as made:
        yield made


def test_a_link_works_once_and_gives_a_cookie_that_shows_all_pages(portal: LocalPortal, client: httpx.Client) -> None:
    address = portal.address
    assert client.get(f"{address}/index.html").status_code == 403
    assert client.get(f"{address}/enter/another").status_code == 403
    entered = client.get(portal.url)
    assert entered.status_code == 200 and "url=/index.html" in entered.text
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    for page in ("", "/index.html", "/sources/meters.html"):
        shown = client.get(address + page)
        assert shown.status_code == 200 and "meters" in shown.text
        assert shown.headers["cache-control"] == "no-store"
        assert shown.headers["x-content-type-options"] == "nosniff"
    assert client.get(f"{address}/portal.js").headers["content-type"] == "text/javascript"
    assert "the docs" in client.get(f"{address}/docs/index.html").text
    with httpx.Client(trust_env=False) as second:
        assert second.get(portal.url).status_code == 403, "the link was used"
        assert second.get(f"{address}/index.html").status_code == 403


def test_pages_are_read_alone_and_no_path_leads_out(portal: LocalPortal, client: httpx.Client) -> None:
    client.get(portal.url)
    for verb in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(verb, f"{portal.address}/index.html").status_code == 501
    for path in (
        "/docs/..%2F..%2F..%2F..%2Fsecret.html",
        "/..%2Fsecret.html",
        "/vendor/..%2Fapp.py",
        "/sources/x.html",
    ):
        answer = client.get(portal.address + path)
        assert answer.status_code == 404 and "a secret" not in answer.text
    refused = client.get(f"{portal.address}/why/meters/hourly.html?meter=%3Cscript%3E&window_start=yesterday")
    assert refused.status_code == 400 and "<script>" not in refused.text.partition("<main")[2]


def test_a_foreign_name_that_leads_to_the_loopback_gets_nothing(portal: LocalPortal, client: httpx.Client) -> None:
    for path in ("/index.html", portal.link.path):
        answer = client.get(portal.address + path, headers={"Host": "tidemark.example"})
        assert answer.status_code == 421 and "set-cookie" not in answer.headers
    assert client.get(portal.url).status_code == 200, "the link was not used up"


def test_a_link_ends_with_its_time() -> None:
    link = OneTimeLink(seconds=-1)
    assert link.is_over and not link.follow(link.path)
    assert OneTimeLink().path != OneTimeLink().path


def test_a_login_gives_its_token_once_as_a_cookie_and_leads_on(client: httpx.Client) -> None:
    login = LoginServer(TOKEN, "http://127.0.0.1:8080/tidemark/index.html")
    followed: list[bool] = []
    thread = Thread(target=lambda: followed.append(login.wait()))
    thread.start()
    root, _, _ = login.url.partition("/enter/")
    wrong = client.get(f"{root}/enter/guessed")
    assert wrong.status_code == 403 and TOKEN not in str(wrong.headers)
    assert client.get(login.url, headers={"Host": "tidemark.example"}).status_code == 403
    answer = client.get(login.url)
    thread.join()
    login.close()
    assert followed == [True]
    assert (answer.status_code, answer.headers["location"]) == (303, "http://127.0.0.1:8080/tidemark/index.html")
    assert answer.headers["set-cookie"] == f"_token={TOKEN}; Path=/; HttpOnly; SameSite=Lax"
    assert TOKEN not in login.url
    with pytest.raises(httpx.ConnectError):
        client.get(login.url)


def test_a_login_that_nobody_follows_ends_by_itself() -> None:
    login = LoginServer(TOKEN, "http://127.0.0.1:8080/", seconds=0.01)
    assert login.wait() is False
    login.close()


def test_a_browser_gets_the_link_by_a_file_of_the_user_alone(tmp_path: Path) -> None:
    for _ in range(2):
        file = page_that_leads(tmp_path, "http://127.0.0.1:1/enter/x")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "url=http://127.0.0.1:1/enter/x" in file.read_text()


def test_a_browser_follows_the_link_to_the_first_page(portal: LocalPortal, tmp_path: Path) -> None:
    with browser() as started:
        visit = Visit(started, SIZES[0], offline=False)
        asked: list[str] = []
        visit.tab.on("request", lambda request: asked.append(request.url))
        visit.open(page_that_leads(tmp_path, portal.url).as_uri())
        visit.tab.wait_for_url("**/index.html")
        visit.follow(visit.tab.get_by_role("link", name="meters").first)
        visit.tab.get_by_role("heading", name="meters", exact=True).wait_for()
        assert {*visit.wrong} == set()
        # nothing is asked beyond the server
        assert [url for url in asked if not url.startswith((portal.address, "file:", "data:"))] == []
        visit.close()
