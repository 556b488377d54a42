"""A real browser without a network, and what it says of a page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

SIZES = ((1280, 900), (390, 844))
SERIOUS = ("serious", "critical")
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


def browser_path() -> str:
    """The machine's Chromium. Where it has none its tests are left out, but in continuous integration they fail."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None and not os.environ.get("CI"):
        pytest.skip("no Chromium: install it (Debian, Ubuntu: apt-get install chromium)")
    assert found, "no Chromium: .ci/run installs it"
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    path = browser_path()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(_QUIET))
        yield started
        started.close()


class Visit:
    """A tab that keeps what goes wrong in it: console messages, errors of pages, requests that failed."""

    def __init__(
        self, started: Any, size: tuple[int, int], *, offline: bool = True, scheme: str = "light", **options: Any
    ) -> None:
        viewport = {"width": size[0], "height": size[1]}
        self._context = started.new_context(viewport=viewport, offline=offline, color_scheme=scheme, **options)
        self.tab = self._context.new_page()
        self.wrong: list[str] = []
        self.tab.on("console", lambda message: self.wrong.append(f"{message.type}: {message.text}"))
        self.tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.tab.on("requestfailed", lambda request: self.wrong.append(f"failed: {request.url}"))
        self.tab.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))

    def open(self, url: str) -> None:
        """Go to a page, and wait until it has loaded."""
        self.tab.goto(url)

    def follow(self, link: Any) -> None:
        """Click a link, and wait until its page has loaded: whoever leaves a page earlier cancels its requests."""
        with self.tab.expect_navigation():
            link.click()

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.tab.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def faults(self) -> list[str]:
        """What axe-core calls serious or critical, each with the first element that has it."""
        # preloading would fetch the style sheet by a script, which the page forbids
        results = Axe().run(self.tab, options={"resultTypes": ["violations"], "preload": False})
        return [f"{v['id']}: {v['nodes'][0]['html']}" for v in results.response["violations"] if v["impact"] in SERIOUS]

    def close(self) -> None:
        """Close the tab."""
        self._context.close()
