"""Requests that do something are taken from the portal's own pages alone: cookies are not enough."""

from __future__ import annotations

import pytest

from spark_jobs.portal.cross_site import FORM, CrossSite, expect_same_site

OURS = {"content-type": "application/json; charset=utf-8", "host": "lake.example:8080"}


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-origin"},
        {"origin": "http://lake.example:8080"},
        # behind a proxy that gives the server another host: the browser's own word counts
        {"sec-fetch-site": "same-origin", "origin": "https://portal.example"},
    ],
)
def test_a_page_of_this_server_may_ask(headers: dict[str, str]) -> None:
    expect_same_site(OURS | headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},  # the cookie alone
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://lake.example:8080"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "cross-site", "origin": "http://lake.example:8080"},
        {"origin": "http://lake.example"},  # another port is another site
        {"origin": "http://evil.example"},
        {"origin": "http://lake.example:8080.evil.example"},
        {"origin": "http://evil.example/lake.example:8080"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "", "host": ""},
        {"sec-fetch-site": "same-origin", "content-type": "text/plain"},
        {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"},
        {"sec-fetch-site": "same-origin", "content-type": "multipart/form-data; boundary=application/json"},
        {"sec-fetch-site": "same-origin", "content-type": ""},
    ],
)
def test_what_another_site_could_send_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(CrossSite) as refusal:
        expect_same_site(OURS | headers)
    assert "nothing was done" in str(refusal.value)


def test_a_form_is_taken_where_a_form_is_expected() -> None:
    sent = OURS | {"content-type": FORM, "sec-fetch-site": "same-origin"}
    expect_same_site(sent, FORM)
    for wrong in (sent | {"sec-fetch-site": "same-site"}, sent | {"content-type": "text/plain"}, OURS):
        with pytest.raises(CrossSite):
            expect_same_site(wrong, FORM)
