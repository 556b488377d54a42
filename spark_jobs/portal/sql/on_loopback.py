"""The SQL page's requests in the portal's small server on the loopback."""

from __future__ import annotations

import select
import shutil
import socket
from concurrent.futures import wait
from getpass import getuser
from http.server import BaseHTTPRequestHandler

from spark_jobs.portal.sql.desk import MOST_BYTES, Reply, SqlDesk

_LOOK_S = 0.2
"""The seconds between two looks whether the browser is still there."""


def sql_reply(desk: SqlDesk, action: str, request: BaseHTTPRequestHandler) -> Reply | None:
    """The reply to a request of the page. If the browser goes away, the statement is cancelled, and it is None."""
    length = request.headers.get("Content-Length", "")
    # what is longer is cut, which the desk refuses as it is no JSON
    body = request.rfile.read(min(int(length), MOST_BYTES + 1)) if length.isdecimal() else b""
    headers = {name.lower(): value for name, value in request.headers.items()}
    work = desk.begin(action, headers, body, getuser())
    while not wait([work.reply], _LOOK_S).done:
        if _has_gone(request.connection):
            work.cancel()
            return None
    return work.reply.result()


def send(request: BaseHTTPRequestHandler, reply: Reply) -> None:
    """Send the body of a reply, whose length nobody has counted: the connection ends with it."""
    with reply.body:
        shutil.copyfileobj(reply.body, request.wfile)


def _has_gone(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    if not readable:
        return False
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True
