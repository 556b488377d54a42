"""The portal as Airflow's API server answers with it: who may see and do what, and the answer to each request."""

from __future__ import annotations

from asyncio import Lock
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
from fastapi import HTTPException
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.portal.actions.airflow import PAGES_WITH_FACTS, AirflowFacts, UserInAirflow, airflow_facts
from spark_jobs.portal.actions.doing import act, answer_question
from spark_jobs.portal.actions.forms import BY_NAME
from spark_jobs.portal.asking import PageMissing, VisibleSources, missing_page
from spark_jobs.portal.assets import ASSETS, KINDS
from spark_jobs.portal.cross_site import FORM, expect_same_site
from spark_jobs.portal.docs import DBT_DOCS, DOCS, docs_file
from spark_jobs.portal.links import Links
from spark_jobs.portal.names import decode_part
from spark_jobs.portal.pages import Portal
from spark_jobs.portal.sql.behind_airflow import body_up_to, sql_route
from spark_jobs.portal.sql.desk import SqlDesk

_PRIVATE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_HEADERS = _PRIVATE | {"Content-Security-Policy": "frame-ancestors 'self'"}

_APART = {"Content-Security-Policy": "sandbox allow-scripts; frame-ancestors 'self'"}
"""The headers of a page that is a program: it runs in an origin of its own, without Airflow's cookies."""


MOST_BYTES = 65_536
"""The most bytes of a form."""


class FormTooLarge(TidemarkError):
    """A form has more bytes than any field needs."""

    code = "form_too_large"


def portal_app(settings: Settings, airflow: Any) -> Starlette:
    """The application of an installation. Airflow identifies the user of each request.

    A source is shown to users who may read its DAG. A mart is shown to users who may read the DAGs of all sources that
    it is made of. The Data Docs and the SQL page are shown to users who may read all DAGs. Users who may start runs of
    a source's DAG may act on the source.

    Args:
        settings: those of the installation.
        airflow: Airflow's own application, which answers requests of the REST API.
    """
    served = ServedPortal(settings, airflow)
    return Starlette(routes=[served.sql_route(), Route("/{name:path}", served.answer, methods=["GET", "POST"])])


class ServedPortal:
    """The portal behind Airflow's login; for the arguments see `portal_app`."""

    def __init__(self, settings: Settings, airflow: Any) -> None:
        self._settings = settings
        self._airflow = airflow
        self._portal = Portal(settings, is_live=True)
        # Airflow takes both of two answers that come at once
        self._answering = Lock()

    def sql_route(self) -> Route:
        """The route of the SQL page's requests."""
        desk = SqlDesk(self._settings, lambda mart: mart in self._portal.marts(), self._portal.sources)
        route: Route = sql_route(desk, identify, partial(may_read, source=None), _PRIVATE)
        return route

    async def answer(self, request: Request) -> Response:
        """The answer to one request."""
        name = request.path_params["name"] or "index.html"
        if name in ASSETS:
            file = ASSETS[name]
            return FileResponse(file, media_type=KINDS[file.suffix], headers={"Cache-Control": "max-age=600"})
        try:
            user = await identify(request)
        except HTTPException:
            if request.method == "POST":
                return PlainTextResponse("log in first", 401)
            # Airflow's login leads back to the page that was asked for
            return RedirectResponse(get_auth_manager().get_url_login(next_url=request.url.path))
        if request.method == "POST":
            return await self._do(request, name, user)
        asked = {key: request.query_params.getlist(key) for key in request.query_params}
        kind, source, tail = _parts(name)
        facts = None
        # other pages need no answer of Airflow, and look at the folder of sources themselves
        has_facts = kind in PAGES_WITH_FACTS and source in await run_in_threadpool(self._portal.sources)
        if has_facts and may_read(user, source):
            facts = await airflow_facts(self._as_user(user), kind, source, tail)
        return await run_in_threadpool(self._page, name, asked, user, facts)

    async def _do(self, request: Request, name: str, user: Any) -> Response:
        """Do what a form asks for, and lead on to the page that shows the outcome."""
        kind, source_name, tail = _parts(name)
        try:
            expect_same_site(request.headers, FORM)
            source = (await run_in_threadpool(self._portal.sources)).get(source_name)
            if source is None or not may_read(user, source_name) or not may_act(user, source_name):
                raise missing_page(name)
            form = parse_qs(await _text(request))
            if kind == "answer":
                async with self._answering:
                    parts = await answer_question(self._as_user(user), source, form)
            elif kind == "act" and tail in BY_NAME:
                parts = await act(self._as_user(user), source, BY_NAME[tail], form)
            else:
                raise missing_page(name)
        except TidemarkError as error:
            return self._refusal(name, error)
        # Airflow's ids of runs may be too long for a name of a page
        links = Links(name)
        return RedirectResponse(str(links.to(*parts) or links.to("activity", source.name)), status_code=303)

    def _page(self, name: str, asked: dict[str, list[str]], user: Any, facts: AirflowFacts | None) -> Response:
        if name.startswith(f"{DOCS}/"):
            file = docs_file(self._settings, name) if may_read(user, None) else None
            headers = _PRIVATE | (_APART if name == DBT_DOCS else {})
            return FileResponse(file, headers=headers) if file else PlainTextResponse("there is no such page", 404)
        try:
            visible = VisibleSources(partial(may_read, user), partial(may_act, user))
            return HTMLResponse(self._portal.page(name, asked, visible, airflow=facts), headers=_HEADERS)
        except TidemarkError as error:
            return self._refusal(name, error)

    def _refusal(self, name: str, error: TidemarkError) -> Response:
        status = 404 if isinstance(error, PageMissing) else 400
        return HTMLResponse(self._portal.refusal(name, error), status, headers=_HEADERS)

    def _as_user(self, user: Any) -> UserInAirflow:
        return UserInAirflow(self._airflow, get_auth_manager().generate_jwt(user))


async def identify(request: Request) -> Any:
    """Airflow's user of a request. HTTPException: the request has no login."""
    return await get_user(request, None, await bearer_scheme(request))


async def _text(request: Request) -> str:
    """The body of a request.

    Raises:
        FormTooLarge: it has more than `MOST_BYTES`.
    """
    body = await body_up_to(request, MOST_BYTES)
    if len(body) > MOST_BYTES:
        raise FormTooLarge(
            expected=f"a form of at most {MOST_BYTES:,} bytes",
            found="more",
            consequence="nothing was done",
            next_step="shorten the texts of its fields",
        )
    return body.decode(errors="replace")


def may_read(user: Any, source: str | None) -> bool:
    """True if the user may read the source's DAG, or, of None, all DAGs."""
    details = None if source is None else DagDetails(id=source)
    return get_auth_manager().is_authorized_dag(method="GET", details=details, user=user)


def may_act(user: Any, source: str) -> bool:
    """True if the user may start runs of the source's DAG."""
    entity, details = DagAccessEntity.RUN, DagDetails(id=source)
    return get_auth_manager().is_authorized_dag(method="POST", access_entity=entity, details=details, user=user)


def _parts(name: str) -> tuple[str, str, str]:
    """The kind of a page, its source, and the rest of its name."""
    kind, _, tail = name.removesuffix(".html").partition("/")
    source, _, more = tail.partition("/")
    return kind, decode_part(source), decode_part(more)
