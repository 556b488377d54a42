"""The portal without Airflow at work, and its SQL page in a tab of Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.portal.local import LocalPortal
from tests.portal.browser import SIZES, Visit


@contextmanager
def serving(settings: Settings) -> Iterator[LocalPortal]:
    served = LocalPortal(settings)
    thread = Thread(target=served.serve)
    thread.start()
    try:
        yield served
    finally:
        served.close()
        thread.join()


class SqlTab:
    """The SQL page in a tab of Chromium."""

    def __init__(
        self, started: Any, portal: LocalPortal, scheme: str = "light", size: tuple[int, int] = SIZES[0]
    ) -> None:
        self.visit = Visit(started, size, offline=False, scheme=scheme)
        self.tab, self.asked = self.visit.tab, list[str]()
        self.tab.on("request", lambda request: self.asked.append(request.url))
        port = portal.address.rpartition(":")[2]
        cookie = {"name": f"tidemark-{port}", "value": portal._secret, "url": portal.address}
        self.visit._context.add_cookies([cookie])
        self.address = portal.address

    def open(self, fragment: str = "") -> None:
        self.visit.open(f"{self.address}/sql.html{fragment}")
        # on a phone the tables are folded
        self.tab.locator("#tables li").first.wait_for(state="attached", timeout=120_000)

    def write(self, text: str) -> None:
        self.tab.get_by_role("textbox", name="SQL statement").click()
        self.tab.keyboard.press("Control+a")
        self.tab.keyboard.type(text)
        self.tab.keyboard.press("Escape")

    def text(self) -> str:
        return "\n".join(self.tab.locator(".cm-line").all_inner_texts())

    def run(self) -> None:
        self.tab.keyboard.press("Control+Enter")
        self.tab.locator("#run:enabled").wait_for(timeout=120_000)

    def close(self) -> None:
        """Nothing was written to the console, and nothing was asked beyond the server."""
        assert self.visit.wrong == []
        assert [url for url in self.asked if not url.startswith((self.address, "blob:", "data:"))] == []
        self.visit.close()
