"""A login to the portal in Airflow by a link that works once, on the loopback, for a short time.

A small server gives the browser the cookie of Airflow's login, and leads on to the portal. Cookies do not tell ports
apart, so Airflow gets it. The token is in no URL, so no log and no history of a browser has it.
"""

from __future__ import annotations

from http import HTTPStatus
from http.server import HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from spark_jobs.portal.local import LINK_S, LOOPBACK, OneTimeLink, QuietHandler
from spark_jobs.server.airflow_parts import LOGIN_COOKIE


class LoginServer:
    """A server on the loopback that answers one request: the one-time link. Close it after use.

    Args:
        token: the token of Airflow's login.
        page: the page to lead on to, on a host of the loopback.
        seconds: how long the link works.
    """

    def __init__(self, token: str, page: str, seconds: float = LINK_S) -> None:
        self.link = link = OneTimeLink(seconds)

        class Handler(QuietHandler):
            timeout = 5.0

            def do_GET(self) -> None:  # noqa: N802 (the name that the base class calls)
                if not self.is_for_us() or not link.follow(urlsplit(self.path).path):
                    self.reply(HTTPStatus.FORBIDDEN, b"the link was used, or is another one")
                    return
                cookie = f"{LOGIN_COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax"
                self.reply(HTTPStatus.SEE_OTHER, Location=page, Set_Cookie=cookie)

        self._server = HTTPServer((LOOPBACK, 0), Handler)
        self._server.timeout = 0.2

    @property
    def url(self) -> str:
        """The one-time link."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}{self.link.path}"

    def wait(self) -> bool:
        """Answer until the link was followed or its time is up; True if it was followed."""
        while not self.link.is_over:
            self._server.handle_request()
        return self.link.is_used

    def close(self) -> None:
        """Close the port."""
        self._server.server_close()


def page_that_leads(home: Path, url: str) -> Path:
    """A file, readable by the user alone, whose only content leads a browser to `url`.

    Every user of a machine sees the arguments of its processes. So a browser is given this file, not the link.
    """
    file = home / "open.html"
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(f'<!DOCTYPE html><title>Tidemark</title><meta http-equiv="refresh" content="0; url={url}">')
    return file
