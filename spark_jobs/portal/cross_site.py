"""The rule by which requests that do something are taken from the portal's own pages alone.

A browser sends its cookies with requests that pages of other sites make, too. So a login in a cookie is not enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from spark_jobs.errors import TidemarkError

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
"""The types of a request's body: scripts send JSON, which no form of another site can send, and forms the other."""


class CrossSite(TidemarkError):
    """A request that does something did not come from a page of this server."""

    code = "cross_site"


def expect_same_site(headers: Mapping[str, str], body: str = JSON) -> None:
    """Check the headers of a request that does something; their names are in lower case.

    Its body is of the type `body`, and the browser says that a page of this server made the request: by
    `Sec-Fetch-Site`, or, where the page came without TLS from another machine, by an `Origin` with our own host and
    port. A request that says neither is refused.

    Raises:
        CrossSite: the request may be that of another site's page.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    site = headers.get("sec-fetch-site")
    origin, host = headers.get("origin", ""), headers.get("host", "")
    is_own = site == "same-origin" if site is not None else bool(host) and _host(origin) == host
    if kind == body and is_own:
        return
    came = f"Sec-Fetch-Site: {site}" if site is not None else f"Origin: {origin or 'none'} at {host}"
    raise CrossSite(
        expected=f"a request with a body of {body} from a page of this server",
        found=f"a body of {kind or 'no type'}, {came}",
        consequence="nothing was done",
        next_step="use the portal's own page; a program uses `tidemark` commands, JDBC or Airflow's API",
    )


def _host(origin: str) -> str | None:
    """The host and port of an origin; None if it is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
