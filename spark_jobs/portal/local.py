"""The portal from a small server on the loopback: without Airflow, for the user who started it.

Other users of the machine can reach the loopback, too. So the pages are shown to a browser that has followed a link,
which works once and for a short time: it gives the browser a cookie with a secret of this process.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import compare_digest, token_urlsafe
from threading import Lock
from urllib.parse import parse_qs, unquote, urlsplit

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.portal.asking import PageMissing
from spark_jobs.portal.assets import ASSETS, KINDS
from spark_jobs.portal.docs import DBT_DOCS, DOCS, docs_file
from spark_jobs.portal.pages import Portal
from spark_jobs.portal.sql.desk import PREFIX, SqlDesk
from spark_jobs.portal.sql.on_loopback import send, sql_reply

LINK_S = 120.0
"""The seconds for which a link works that nobody has followed."""
LOOPBACK = "127.0.0.1"
_HTML = "text/html; charset=utf-8"
_DOCS_KINDS = {".html": _HTML, ".css": "text/css", ".js": "text/javascript", ".json": "application/json"}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class OneTimeLink:
    """A secret path that works once, and for a short time only.

    Args:
        seconds: how long it works if nobody follows it.
    """

    def __init__(self, seconds: float = LINK_S) -> None:
        self.path = f"/enter/{token_urlsafe(32)}"
        self._until = time.monotonic() + seconds
        self._lock = Lock()
        self.is_used = False

    @property
    def is_over(self) -> bool:
        """True if it was followed or its time is up."""
        return self.is_used or time.monotonic() > self._until

    def follow(self, path: str) -> bool:
        """True if `path` is this link and works; from then on it does not work any more."""
        with self._lock:
            if self.is_over or not compare_digest(path.encode(), self.path.encode()):
                return False
            self.is_used = True
            return True


class QuietHandler(BaseHTTPRequestHandler):
    """A request to a server on the loopback. It writes no log, since a path may be a secret."""

    server_version = "tidemark"
    sys_version = ""

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing."""

    def is_for_us(self, *other_names: str) -> bool:
        """True if this server was asked by its address, or one of these names: any name may lead to the loopback."""
        port = self.connection.getsockname()[1]
        return self.headers.get("Host", "") in {f"{name}:{port}" for name in (LOOPBACK, *other_names)}

    def reply(self, status: HTTPStatus, body: bytes = b"", kind: str = "text/plain", **headers: str) -> None:
        """Send an answer."""
        self.begin_reply(status, kind, **{"Content-Length": str(len(body))} | headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin_reply(self, status: HTTPStatus, kind: str, **headers: str) -> None:
        """Send the head of an answer; without a `Content-Length` its body ends with the connection."""
        self.send_response(status)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in (_HEADERS | {"Content-Type": kind} | named).items():
            self.send_header(name, value)
        self.end_headers()


class LocalPortal:
    """The server of an installation's pages. Close it after use.

    Args:
        settings: those of the installation.
        port: its port on the loopback; 0: any free one.
    """

    def __init__(self, settings: Settings, port: int = 0) -> None:
        self.link = OneTimeLink()
        self._portal, self._settings = Portal(settings, is_live=True), settings
        self._desk = SqlDesk(settings, lambda mart: mart in self._portal.marts(), self._portal.sources)
        self._secret = token_urlsafe(32)
        outer = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                outer._answer(self)

            def do_POST(self) -> None:
                outer._work(self)

        self._server = ThreadingHTTPServer((LOOPBACK, port), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """The one-time link to the first page."""
        return f"{self.address}{self.link.path}"

    @property
    def address(self) -> str:
        """The address of the server."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def serve(self) -> None:
        """Answer requests until `close` is called from another thread, or the process is interrupted."""
        self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """End the server and its statements, and free its port."""
        self._desk.close()
        self._server.shutdown()
        self._server.server_close()

    @property
    def _cookie(self) -> str:
        # cookies do not tell ports apart, so servers of several installations need names of their own
        return f"tidemark-{self._server.server_address[1]}"

    def _answer(self, request: QuietHandler) -> None:
        """Answer a request: the one-time link, a page, an asset or a file of the Data Docs."""
        url = urlsplit(request.path)
        if not request.is_for_us():
            request.reply(HTTPStatus.MISDIRECTED_REQUEST, b"ask for this server by its address")
        elif self.link.follow(url.path):
            cookie = f"{self._cookie}={self._secret}; Path=/; HttpOnly; SameSite=Strict"
            # a redirect would be a request from the page before, to which a strict cookie is not sent
            page = (
                b'<!DOCTYPE html><title>Tidemark</title><link rel="icon" href="data:,">'
                b'<meta http-equiv="refresh" content="0; url=/index.html">'
            )
            request.reply(HTTPStatus.OK, page, _HTML, Set_Cookie=cookie)
        elif not self._is_let_in(request):
            request.reply(HTTPStatus.FORBIDDEN, b"`tidemark open` prints a link that opens these pages")
        else:
            self._show(request, unquote(url.path).lstrip("/") or "index.html", parse_qs(url.query))

    def _work(self, request: QuietHandler) -> None:
        """Answer a request that does something: one of the SQL page."""
        name = urlsplit(request.path).path.lstrip("/")
        if not request.is_for_us():
            request.reply(HTTPStatus.MISDIRECTED_REQUEST, b"ask for this server by its address")
        elif not self._is_let_in(request):
            request.reply(HTTPStatus.FORBIDDEN, b"`tidemark open` prints a link that opens these pages")
        elif not name.startswith(PREFIX):
            request.reply(HTTPStatus.NOT_IMPLEMENTED, b"this page is read alone")
        else:
            reply = sql_reply(self._desk, name.removeprefix(PREFIX), request)
            if reply is not None:
                request.begin_reply(reply.status, reply.kind)
                send(request, reply)

    def _is_let_in(self, request: QuietHandler) -> bool:
        """True if the request has the cookie of this process."""
        try:
            cookie = SimpleCookie(request.headers.get("Cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and compare_digest(cookie.value.encode(), self._secret.encode())

    def _show(self, request: QuietHandler, name: str, asked: dict[str, list[str]]) -> None:
        if name in ASSETS:
            file = ASSETS[name]
            request.reply(HTTPStatus.OK, file.read_bytes(), KINDS[file.suffix], Cache_Control="max-age=600")
            return
        if name.startswith(f"{DOCS}/"):
            document = docs_file(self._settings, name)
            if document is None:
                request.reply(HTTPStatus.NOT_FOUND, b"there is no such page")
                return
            kind = _DOCS_KINDS.get(document.suffix, "application/octet-stream")
            apart = {"Content_Security_Policy": "sandbox allow-scripts"} if name == DBT_DOCS else {}
            request.reply(HTTPStatus.OK, document.read_bytes(), kind, **apart)
            return
        try:
            status, page = HTTPStatus.OK, self._portal.page(name, asked)
        except TidemarkError as error:
            status = HTTPStatus.NOT_FOUND if isinstance(error, PageMissing) else HTTPStatus.BAD_REQUEST
            page = self._portal.refusal(name, error)
        request.reply(status, page.encode(), _HTML)
