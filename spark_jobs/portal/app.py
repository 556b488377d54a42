"""The portal behind Airflow's login: an application that Airflow's API server mounts at `/tidemark`.

Its parts are imported with the first request, because Airflow's other processes load the plugin too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from spark_jobs.config import PORTAL_PREFIX, Settings, load_settings
from spark_jobs.errors import TidemarkError

_PRIVATE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_HEADERS = _PRIVATE | {"Content-Security-Policy": "frame-ancestors 'self'"}

_APART = {"Content-Security-Policy": "sandbox allow-scripts; frame-ancestors 'self'"}
"""The headers of a page that is a program: it runs in an origin of its own, without Airflow's cookies."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class LazyPortal:
    """An ASGI application that is created by its first request."""

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._app is None:
            self._app = portal_app(load_settings())
        await self._app(scope, receive, send)


def external_views() -> list[dict[str, str | bool]]:
    """The portal's entry in Airflow's navigation, and its pages of a DAG, a run and a task."""
    of_dag, of_run = f"{PORTAL_PREFIX}/sources/{{DAG_ID}}.html", f"{PORTAL_PREFIX}/runs/{{DAG_ID}}/{{RUN_ID}}.html"
    pages = {
        "nav": ("tidemark", f"{PORTAL_PREFIX}/index.html"),
        "dag": ("tidemark-source", of_dag),
        "dag_run": ("tidemark-run", of_run),
        "task": ("tidemark-stage", of_dag),
        "task_instance": ("tidemark-attempt", of_run),
    }
    return [
        # at the top of the navigation, also beside other plugins
        {"name": "Tidemark", "href": href, "destination": destination, "url_route": route, "nav_top_level": True}
        for destination, (route, href) in pages.items()
    ]


def portal_app(settings: Settings) -> Any:
    """The application of an installation. Airflow identifies the user of each request.

    A source is shown to users who may read its DAG. A mart is shown to users who may read the DAGs of all sources that
    it is made of. The Data Docs and the SQL page are shown to users who may read all DAGs.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
    from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
    from fastapi import HTTPException
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route

    from spark_jobs.portal.asking import PageMissing
    from spark_jobs.portal.asking import VisibleSources as SeenSources
    from spark_jobs.portal.assets import ASSETS, KINDS
    from spark_jobs.portal.docs import DBT_DOCS, DOCS, docs_file
    from spark_jobs.portal.pages import Portal
    from spark_jobs.portal.sql.behind_airflow import sql_route
    from spark_jobs.portal.sql.desk import SqlDesk

    portal = Portal(settings, is_live=True)
    desk = SqlDesk(settings, lambda mart: mart in portal.marts())

    def may_read(who: Any, source: str | None) -> bool:
        details = None if source is None else DagDetails(id=source)
        return get_auth_manager().is_authorized_dag(method="GET", details=details, user=who)

    def page(name: str, asked: dict[str, list[str]], who: Any) -> Response:
        if name.startswith(f"{DOCS}/"):
            file = docs_file(settings, name) if may_read(who, None) else None
            headers = _PRIVATE | (_APART if name == DBT_DOCS else {})
            return FileResponse(file, headers=headers) if file else PlainTextResponse("there is no such page", 404)
        try:
            seen = SeenSources(lambda source: may_read(who, source))
            return HTMLResponse(portal.page(name, asked, seen), headers=_HEADERS)
        except TidemarkError as error:
            status = 404 if isinstance(error, PageMissing) else 400
            return HTMLResponse(portal.refusal(name, error), status, headers=_HEADERS)

    async def identify(request: Request) -> Any:
        return await get_user(request, None, await bearer_scheme(request))

    async def answer(request: Request) -> Response:
        name = request.path_params["name"] or "index.html"
        if name in ASSETS:
            file = ASSETS[name]
            return FileResponse(file, media_type=KINDS[file.suffix], headers={"Cache-Control": "max-age=600"})
        try:
            who = await identify(request)
        except HTTPException:
            # Airflow's login leads back to the page that was asked for
            return RedirectResponse(get_auth_manager().get_url_login(next_url=request.url.path))
        asked = {key: request.query_params.getlist(key) for key in request.query_params}
        return await run_in_threadpool(page, name, asked, who)

    sql = sql_route(desk, identify, lambda who: may_read(who, None), _PRIVATE)
    return Starlette(routes=[sql, Route("/{name:path}", answer)])
