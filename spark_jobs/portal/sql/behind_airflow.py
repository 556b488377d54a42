"""The SQL page's requests in Airflow's API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import IO, Any

from spark_jobs.portal.sql.desk import MOST_BYTES, PREFIX, SqlDesk

_CHUNK = 1 << 16


def sql_route(
    desk: SqlDesk, identify: Callable[[Any], Awaitable[Any]], may_use: Callable[[Any], bool], headers: Mapping[str, str]
) -> Any:
    """The route of the page's requests.

    Args:
        desk: the work behind the page.
        identify: returns the user of a request, or raises HTTPException without a login.
        may_use: true for a user who may use the page.
        headers: the headers of all responses.
    """
    from fastapi import HTTPException
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(request: Any) -> Any:
        try:
            who = await identify(request)
        except HTTPException:
            return JSONResponse({"error": "the login is over: load the page anew"}, 401, headers=headers)
        if not await run_in_threadpool(may_use, who):
            return JSONResponse({"error": "there is no such page"}, 404, headers=headers)
        return await sql_answer(desk, request.path_params["action"], request, who.get_name(), headers)

    return Route(f"/{PREFIX}{{action}}", answer, methods=["POST"])


async def sql_answer(desk: SqlDesk, action: str, request: Any, who: str, headers: Mapping[str, str]) -> Any:
    """The response to a request of the page. If the browser goes away, the statement is cancelled.

    Args:
        desk: the work behind the page.
        action: the path of the request after `PREFIX`.
        request: the request of Starlette.
        who: the name of the user.
        headers: the headers of the response.
    """
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import StreamingResponse

    # what is longer the desk refuses, as it is no JSON
    body = await body_up_to(request, MOST_BYTES)
    work = await run_in_threadpool(desk.begin, action, request.headers, body, who)
    reply = asyncio.ensure_future(asyncio.wrap_future(work.reply))
    gone = asyncio.ensure_future(_disconnect(request))
    either: set[asyncio.Future[Any]] = {reply, gone}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not reply.done():
            await run_in_threadpool(work.cancel)
        result = await reply
    finally:
        gone.cancel()
    return StreamingResponse(_chunks(result.body), result.status, headers=dict(headers), media_type=result.kind)


async def body_up_to(request: Any, most: int) -> bytes:
    """The body of a request of Starlette; of one with more than `most` bytes the begin, which has more than `most`."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            break
    return bytes(body)


async def _disconnect(request: Any) -> None:
    """Wait until the browser has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _chunks(body: IO[bytes]) -> Iterator[bytes]:
    """The body of a reply; Starlette reads it in threads."""
    with body:
        while chunk := body.read(_CHUNK):
            yield chunk
