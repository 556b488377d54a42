"""`open`: the portal in a browser."""

from __future__ import annotations

import contextlib
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from spark_jobs.cli.output import JsonOption, emit, note, show
from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from spark_jobs.cli.portal_login import LoginServer
    from spark_jobs.portal.local import LocalPortal

LOOPBACK_HOSTS = ("127.0.0.1", "localhost")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("open")(open_)


def open_(
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Start a browser, or print the link alone.")
    ] = True,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Without Airflow: the port of the pages; 0: any free one.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Open the portal in a browser.

    With Airflow the browser is logged in as admin by a link that works once, for two minutes, on this machine. Without
    Airflow the same pages are shown read-only until Ctrl-C; they are read from the lake's files, and no server is
    asked.
    """
    from spark_jobs.server.status import runs_airflow

    settings = load_settings()
    if runs_airflow(settings):
        open_in_airflow(settings, browser=browser, as_json=as_json)
    else:
        _open_alone(settings, browser=browser, port=port, as_json=as_json)


def open_in_airflow(settings: Settings, *, browser: bool, as_json: bool = False) -> None:
    """Print the one-time link, start a browser at it, and wait until it was followed or its time is up."""
    from spark_jobs.cli.portal_login import LoginServer
    from spark_jobs.portal.local import LINK_S
    from spark_jobs.server.airflow_api import AirflowApi

    page = settings.page_url("index")
    if settings.server_host not in LOOPBACK_HOSTS:
        # the cookie would belong to another host
        emit(as_json, {"page": page, "link": None}, lambda: Text(f"the portal: {page} (Airflow asks for the login)"))
        if browser:
            webbrowser.open(page)
        return
    with AirflowApi(settings) as airflow:
        token = airflow.token()
    own_page = page.replace("//localhost:", "//127.0.0.1:", 1)
    with contextlib.closing(LoginServer(token, own_page)) as login:
        words = f"the portal: {login.url}\nThe link logs in once, within {LINK_S:.0f} s."
        emit(as_json, {"page": own_page, "link": login.url}, lambda: Text(words))
        _show_in_browser(settings, login, browser=browser)
        if not login.wait():
            note(f"nobody followed the link; `tidemark open` makes another one, and {page} asks for the login")


def _open_alone(settings: Settings, *, browser: bool, port: int, as_json: bool) -> None:
    """Serve the pages until the process is interrupted."""
    if "://" not in str(settings.lake) and not Path(settings.lake).is_dir():
        raise ParameterError(
            expected="a lake with tables",
            found=f"no folder {settings.lake}",
            next_step="`tidemark run SOURCE --from …` makes it; `tidemark` says what to do next",
        )
    from spark_jobs.portal.local import LINK_S, LocalPortal

    try:
        portal = LocalPortal(settings, port)
    except OSError as error:
        raise ParameterError(
            expected=f"a free port {port}", found=str(error.strerror), next_step="name another one with --port"
        ) from error
    words = f"the portal: {portal.url}\nThe link works once, within {LINK_S:.0f} s. Ctrl-C ends the pages."
    emit(as_json, {"page": f"{portal.address}/index.html", "link": portal.url}, lambda: Text(words))
    _show_in_browser(settings, portal, browser=browser)
    with contextlib.suppress(KeyboardInterrupt):
        portal.serve()
    if not as_json:
        show(Text("the pages have ended"))


def _show_in_browser(settings: Settings, server: LoginServer | LocalPortal, *, browser: bool) -> None:
    """Start a browser at the one-time link of a server, if it is wanted and there is one."""
    from spark_jobs.cli.portal_login import page_that_leads

    # a program that reads the link gets it now
    sys.stdout.flush()
    if browser:
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(page_that_leads(settings.home, server.url).as_uri())
