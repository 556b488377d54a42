"""The pictures of the SQL page in the documentation: `python -m tests.portal.sql_pictures` makes them anew.

A source of its own runs for some days on a lake server. The page is opened in Chromium, light at 1280 pixels and dark
at 390, and its pictures are written beside those of `pictures.py`.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from tests.installations import Installation
from tests.jobs.harness import SOURCE, Reading, write_drops
from tests.portal.browser import SIZES, browser
from tests.portal.pictures import OUT, TAKEN, save
from tests.portal.sql_tab import SqlTab, serving

DAYS, NIGHT = 5, 24 * 60
QUERY = """SELECT date_trunc('HOUR', window_start) AS hour, count(*) AS windows, sum(total) AS total
FROM silver.hourly
GROUP BY ALL
ORDER BY hour"""


def main() -> None:
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        installed = Installation(home, sources=home / "sources", landing=home / "landing")
        with installed.serving("--no-airflow"), browser() as started:
            installed.settings.sources.mkdir()
            (installed.settings.sources / "meters.yml").write_text(SOURCE)
            write_drops(
                installed.settings,
                [
                    Reading(
                        day,
                        day * NIGHT + chance.randrange(NIGHT),
                        chance.choice(["north", "south"]),
                        chance.randint(1, 300),
                    )
                    for day in range(DAYS)
                    for _ in range(200)
                ],
            )
            installed.json("run", "meters", "--from", "2024-01-01", "--to", f"2024-01-0{DAYS}")
            with serving(installed.settings) as portal:
                for width, scheme in TAKEN:
                    page = SqlTab(started, portal, scheme, next(size for size in SIZES if size[0] == width))
                    page.open()
                    page.write(QUERY)
                    page.run()
                    page.tab.locator("#chart svg").wait_for()
                    page.tab.evaluate("window.scrollTo(0, 0)")
                    save(page.tab.screenshot(), OUT / f"sql-{width}-{scheme}.png")
                    page.close()


if __name__ == "__main__":
    main()
