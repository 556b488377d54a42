"""A client of Airflow's REST API, as this installation's administrator. A call takes 0.1 s; a command of Airflow's own
would take 10 s."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.server.airflow_parts import ADMIN, admin_password
from spark_jobs.server.listeners import trace_extension

PAGE = 100
"""The number of runs requested per page. Airflow returns no more, whatever the request (its `maximum_page_limit`)."""


class AirflowRefused(TidemarkError):
    """Airflow does not answer, or refused a call. Facts: `status` (None: no answer), `path`."""

    code = "airflow_refused"


class AirflowApi:
    """A client that logs in by itself, and again when its token has expired. Close it, or use it in a `with`."""

    def __init__(self, settings: Settings, *, timeout_s: float = 60.0) -> None:
        self._settings = settings
        # trust_env=False: a proxy of the environment must not see calls to this machine
        self._client = httpx.Client(base_url=settings.airflow_url, timeout=timeout_s, trust_env=False)

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of `GET /api/v2/<path>`. Raises `AirflowRefused`."""
        return self._call("GET", path, params=parameters)

    def post(self, path: str, body: Any) -> Any:
        """The JSON of `POST /api/v2/<path>`. Raises `AirflowRefused`."""
        return self._call("POST", path, json=body)

    def patch(self, path: str, body: Any) -> Any:
        """The JSON of `PATCH /api/v2/<path>`. Raises `AirflowRefused`."""
        return self._call("PATCH", path, json=body)

    def runs(self, dag: str, **filters: Any) -> Iterator[dict[str, Any]]:
        """All runs of a DAG that match the filters, oldest first, page by page. Runs may begin or end meanwhile.
        Raises `AirflowRefused`."""
        cursor: str | None = ""
        while cursor is not None:
            page = self.get(f"dags/{dag}/dagRuns", **filters, order_by="id", limit=PAGE, cursor=cursor)
            yield from page["dag_runs"]
            cursor = page["next_cursor"]

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def _call(self, method: str, path: str, **content: Any) -> Any:
        if "Authorization" not in self._client.headers:
            self._log_in()
        answer = self._send(method, f"/api/v2/{path}", **content)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._log_in()
            answer = self._send(method, f"/api/v2/{path}", **content)
        accepted = self._check_accepted(answer)
        return accepted.json() if accepted.content else None

    def token(self) -> str:
        """A new token of the login of `ADMIN`. Raises `AirflowRefused`."""
        login = {"username": ADMIN, "password": admin_password(self._settings)}
        answer = self._check_accepted(self._send("POST", "/auth/token", json=login))
        return str(answer.json()["access_token"])

    def _log_in(self) -> None:
        self._client.headers["Authorization"] = f"Bearer {self.token()}"

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, extensions=trace_extension(self._settings), **content)
        except httpx.TransportError as error:
            raise AirflowRefused(
                expected=f"Airflow at {self._settings.airflow_url}",
                found=f"no answer ({error})",
                next_step="start it with `tidemark up`, look at it with `tidemark status`",
                status=None,
                path=path,
            ) from error

    def _check_accepted(self, answer: httpx.Response) -> httpx.Response:
        if answer.is_success:
            return answer
        raise AirflowRefused(
            expected=f"{answer.request.method} {answer.request.url.path} to be accepted",
            found=f"status {answer.status_code}: {answer.text[:400]}",
            next_step=f"read {self._settings.logs_dir / 'airflow-api-server.log'}",
            status=answer.status_code,
            path=answer.request.url.path,
        )
