"""The portal behind Airflow's login: an application that Airflow's API server mounts at `/tidemark`.

Its parts are imported with the first request, because Airflow's other processes load the plugin too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from spark_jobs.config import PORTAL_PREFIX, load_settings

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
            from spark_jobs.portal.served import portal_app

            # the application that mounts this one is Airflow's own
            self._app = portal_app(load_settings(), scope["app"])
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
