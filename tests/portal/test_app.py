"""The portal as Airflow's API server has it: behind the login, and to each the sources whose DAGs they may read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from spark_jobs.config import PORTAL_PREFIX, Settings
from spark_jobs.portal.assets import ASSETS
from spark_jobs.server.airflow_parts import LOGIN_COOKIE
from tests.jobs.harness import write_source

RUN = "backfill__2013-01-08T00:00:00+00:00"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """An installation with a source that never ran, and Data Docs."""
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    docs = settings.home / "quality" / "gx" / "uncommitted" / "data_docs"
    (docs / "validations").mkdir(parents=True)
    (docs / "index.html").write_text("<p>the docs</p>")
    (settings.home / "secret.html").write_text("a secret")
    return write_source(settings)


@pytest.fixture(scope="module")
def airflow(home: Settings) -> Iterator[Any]:
    """Airflow's simple auth manager over a database of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(home.home / "airflow"))
        from airflow.api_fastapi import app
        from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
        from airflow.models.revoked_token import RevokedToken

        patch.setattr(app._AuthManagerState, "instance", SimpleAuthManager())
        # the table of tokens that were logged out is in a database, which no process of this test has
        patch.setattr(RevokedToken, "is_revoked", classmethod(lambda *_, **__: False))
        yield app.get_auth_manager()


@pytest.fixture
def ask(airflow: Any, home: Settings) -> Iterator[Any]:
    """Ask for a page as a role of Airflow's, None: without a login. With a body it is a request that does something."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    from spark_jobs.portal.served import portal_app

    outer = Starlette()
    outer.mount(PORTAL_PREFIX, portal_app(home, outer))
    with TestClient(outer, follow_redirects=False) as client:

        def answer(
            page: str, role: str | None, by: str = "header", body: Any = None, form: Any = None, **others: str
        ) -> Any:
            headers = {}
            if role is not None:
                token = airflow.generate_jwt(SimpleAuthManagerUser(username="somebody", role=role or None))
                login = {
                    "header": ("Authorization", f"Bearer {token}"),
                    "cookie": ("Cookie", f"{LOGIN_COOKIE}={token}"),
                }
                headers = dict([login[by]])
            address, headers = f"{PORTAL_PREFIX}/{page}", headers | others
            if form is not None:
                return client.post(address, headers=headers, data=form)
            if body is None:
                return client.get(address, headers=headers)
            return client.post(address, headers=headers, content=body if isinstance(body, str) else json.dumps(body))

        yield answer


def test_who_is_not_logged_in_is_led_to_the_login_and_back(ask: Any) -> None:
    for page in ("", "index.html", "sources/meters.html", "docs/index.html"):
        answer = ask(page, None)
        assert answer.status_code == 307
        assert answer.headers["location"].startswith("/auth/login?next=%2Ftidemark%2F")
        assert answer.text == ""
    assert ask("portal.css", None).headers["content-type"].startswith("text/css")


def test_a_viewer_reads_pages_and_data_docs(ask: Any) -> None:
    for page in ("", "index.html", "sources/meters.html"):
        answer = ask(page, "viewer")
        assert answer.status_code == 200 and "meters" in answer.text
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"] == "frame-ancestors 'self'"
    assert "the docs" in ask("docs/index.html", "viewer").text


def test_the_cookie_of_a_one_time_link_is_a_login(ask: Any) -> None:
    assert "meters" in ask("index.html", "admin", by="cookie").text
    assert "meters" not in ask("index.html", "", by="cookie").text


FORM = {"from": "2024-01-01", "because": "?"}


def test_a_form_is_taken_of_who_may_start_runs_from_a_page_of_this_server(ask: Any) -> None:
    page, own = "act/meters/run.html", {"Sec-Fetch-Site": "same-origin"}
    assert ask(page, None, form=FORM).status_code == 401
    assert ask(page, "viewer", form=FORM, **own).status_code == 404
    assert ask(page, "user", form=FORM | {"because": ""}, **own).status_code == 400
    assert "the field `why`" in ask(page, "admin", form=FORM | {"because": " "}, **own).text
    for elsewhere in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}, {}):
        answer = ask(page, "admin", "cookie", form=FORM, **elsewhere)
        assert answer.status_code == 400 and "cross_site" in answer.text
    answer = ask(page, "admin", form=FORM | {"because": "?" * 100_000}, **own)
    assert answer.status_code == 400 and "form_too_large" in answer.text
    for nothing in ("act/meters/drop.html", "act/ships/run.html", "index.html", "answer/ships.html"):
        assert ask(nothing, "admin", form=FORM, **own).status_code == 404
    assert ask("answer/meters.html", "admin", form={"run": "r"}, **own).status_code == 400
    answer = {"run": "r", "stage": "land", "attempt": "1", "option": "Approve"}
    for elsewhere in ({"run": ".."}, {"stage": ".."}, {"run": "r/tasks"}, {"stage": "land/../seal"}, {"run": "r\n"}):
        assert "a name of a run or stage" in ask("answer/meters.html", "admin", form=answer | elsewhere, **own).text


def test_buttons_are_shown_to_who_may_start_runs(ask: Any) -> None:
    assert "Run drops" in ask("sources/meters.html", "user").text
    assert "Run drops" not in ask("sources/meters.html", "viewer").text
    assert ask("act/meters/run.html", "viewer").status_code == 404


def test_styles_scripts_and_licences_need_no_login(ask: Any) -> None:
    for name, file in ASSETS.items():
        answer = ask(name, None)
        assert answer.content == file.read_bytes()
        assert answer.headers["content-type"].partition(";")[0] in ("text/css", "text/javascript", "text/plain")


def test_who_may_read_no_dag_sees_no_source(ask: Any) -> None:
    assert "meters" not in ask("index.html", "").text
    for page in ("sources/meters.html", "quarantine/meters.html", "docs/index.html"):
        assert ask(page, "").status_code == 404


def test_a_run_that_left_nothing_has_a_page(ask: Any) -> None:
    answer = ask(f"runs/meters/{RUN}.html", "admin")
    assert answer.status_code == 200
    assert "a secret" not in answer.text


@pytest.mark.parametrize("name", ["x~FF", "x~00y", "~2E~2E", "a~2Fb", "a~2Fb~2Ftasks", "a~0A", "~3Fx", "a" * 3000])
def test_any_name_may_be_that_of_a_run(ask: Any, name: str) -> None:
    assert "Nothing is recorded of a run of this name" in ask(f"runs/meters/{name}.html", "admin").text


@pytest.mark.parametrize(
    "page",
    [
        "sources/ships.html",
        "docs/nothing.html",
        "docs/..%2F..%2F..%2F..%2Fsecret.html",
        "docs/%00",
        "docs/~FF",
        f"docs/{'a' * 3000}",
        "sources/~FF.html",
        "x/y",
    ],
)
def test_what_is_not_there_is_not_found(ask: Any, page: str) -> None:
    answer = ask(page, "admin")
    assert answer.status_code == 404 and "a secret" not in answer.text


PAGE = {"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}


def test_the_sql_page_is_for_those_who_may_read_all(ask: Any) -> None:
    assert ask("sql.html", None).status_code == 307
    for page in ("index.html", "sql.html"):
        assert "sql.html" in ask(page, "viewer").text
    assert "sql.html" not in ask("index.html", "").text
    assert ask("sql.html", "").status_code == 404
    for action in ("run", "saved", "cancel", "no-such-action"):
        assert ask(f"sql/{action}", None, body={}, **PAGE).status_code == 401
        assert ask(f"sql/{action}", "", body={}, **PAGE).status_code == 404
    assert ask("sql/saved", "viewer", body={}, **PAGE).json() == []
    assert ask("sql/no-such-action", "viewer", body={}, **PAGE).status_code == 404
    assert ask("sql/saved", "viewer").status_code == 404, "a request that does nothing"


def test_a_cookie_alone_runs_no_statement(ask: Any, home: Settings) -> None:
    query = {"name": "a", "statement": "SELECT 1", "tab": "1"}
    for headers in ({}, PAGE | {"Sec-Fetch-Site": "cross-site"}, PAGE | {"Content-Type": "text/plain"}):
        for action in ("run", "save"):
            refused = ask(f"sql/{action}", "admin", by="cookie", body=query, **headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "cross_site")
    assert not (home.home / "queries").exists()


def test_a_viewer_saves_a_query_under_their_own_name(ask: Any, home: Settings) -> None:
    refused = ask("sql/save", "viewer", body={"name": "../a", "statement": "SELECT 1"}, **PAGE)
    assert refused.json()["code"] == "parameter"
    assert ask("sql/save", "viewer", body={"name": "a", "statement": "SELECT 1"}, **PAGE).json() is None
    assert (home.home / "queries" / "a.sql").read_text().startswith("-- saved by somebody at ")
    assert ask("sql/delete", "viewer", body={"name": "a"}, **PAGE).status_code == 200
    assert ask("sql/saved", "viewer", body={}, **PAGE).json() == []


@pytest.mark.parametrize(
    "body",
    [
        "", "[]", "{", "[" * 100_000, '{"statement": 1, "tab": "1"}', '{"statement": "SELECT 1"}',
        '{"statement": "SELECT \\ud800", "name": "half a character", "tab": "1"}',
    ],
)  # fmt: skip
def test_a_request_of_another_form_is_refused(ask: Any, home: Settings, body: str) -> None:
    for action in ("run", "save"):
        refused = ask(f"sql/{action}", "viewer", body=body, **PAGE)
        assert refused.json()["code"] == "parameter"
    assert [path.name for path in (home.home / "queries").glob("*")] == []


def test_a_question_that_fits_no_table_is_answered_by_its_refusal(ask: Any) -> None:
    answer = ask("why/meters/hourly.html?meter=%3Cscript%3E&window_start=yesterday", "viewer")
    assert answer.status_code == 400
    assert "an instant such as" in answer.text and "<script>" not in answer.text


def test_airflow_finds_the_portal_and_its_links(home: Settings) -> None:
    from airflow.plugins_manager import AirflowPlugin

    from spark_jobs.scheduling.plugin import TidemarkPlugin

    assert issubclass(TidemarkPlugin, AirflowPlugin)
    assert [app["url_prefix"] for app in TidemarkPlugin.fastapi_apps] == [PORTAL_PREFIX]
    places = {view["destination"]: view["href"] for view in TidemarkPlugin.external_views}
    assert {*places} == {"nav", "dag", "dag_run", "task", "task_instance"}
    of_run = (
        str(places["dag_run"])
        .replace("{DAG_ID}", "meters")
        .replace("{RUN_ID}", "backfill__2013-01-08T00%3A00%3A00%2B00%3A00")
    )
    # the same page as the message of a failed gate names
    assert f"{home.airflow_url}{of_run}" == home.page_url("runs", "meters", RUN)
    routes = [view["url_route"] for view in TidemarkPlugin.external_views]
    assert len({*routes}) == len(routes), "Airflow drops a view whose route another one has"
