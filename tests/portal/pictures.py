"""The pictures of the portal in the documentation: `python -m tests.portal.pictures [--home DIR]` makes them anew.

Three sources run for some weeks on a lake of files, without a server; the clock is that of the last day. The pages are
opened in Chromium, light at 1280 pixels and dark at 390, the first page in all four ways, and their pictures are
written to `docs/assets/portal`. All pages in all four ways are examined by `test_browser.py`.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import pyarrow.compute as pc
import time_machine
from deltalake import DeltaTable, write_deltalake
from PIL import Image

from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.gates import GateFailed
from spark_jobs.jobs.request import Request
from spark_jobs.model import STAGES
from spark_jobs.portal.site import write_site
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.names.shown_marts import ShownMarts, note_shown
from tests.jobs.harness import DAY, SOURCE, START, Reading, run_one, write_source
from tests.portal.browser import SIZES, Visit, browser
from tests.support.file_session import FileSession

DROPS = 30
NIGHT = 24 * 60
NAMES = {"meters": "grid", "gauges": "harbour", "turbines": "wind"}
"""The sources and their owners."""
EXTRA = """
description: Readings of {name}, one file a day, as the operator sends them.
checks:
  load_low: {{kind: between, column: load, max: 400}}
dag: {{owner: {owner}, tags: [energy], deadline: 3 h, notify: [team@example.org]}}
"""
WIDEST = 960
TAKEN = ((1280, "light"), (390, "dark"))
OUT = CHECKOUT / "docs" / "assets" / "portal"


def lay_out(home: Path) -> Settings:
    """An installation whose sources have run."""
    settings = Settings(home=home, landing=home / "landing")
    for name, owner in NAMES.items():
        text = (
            SOURCE.replace("meters", name).replace("hourly:", f"{name}_hourly:").replace("shifts:", f"{name}_shifts:")
        )
        settings = write_source(settings, text + EXTRA.format(name=name, owner=owner), name)
    session, chance = FileSession(Path(settings.lake)), random.Random(7)
    for drop in range(DROPS):
        for name in NAMES:
            if name == "gauges" and drop >= DROPS - 2:
                continue  # it is late
            lines = list(_lines(name, drop, chance))
            file = settings.landing_folder / name / f"{START + drop * DAY:%Y-%m-%d}" / f"{name}.ndjson"
            file.parent.mkdir(parents=True)
            file.write_text("".join(f"{line}\n" for line in lines))
            with time_machine.travel(START + (drop + 1) * DAY + timedelta(minutes=20), tick=True), suppress(GateFailed):
                for stage in STAGES:
                    _run(session, settings, name, drop, stage)
    _mart(settings)
    session.close()
    return settings


def _run(session: FileSession, settings: Settings, name: str, drop: int, stage: str) -> None:
    lo, run_id = START + drop * DAY, f"scheduled-{START + drop * DAY:%Y-%m-%d}"
    run_one(
        session,
        stage,
        source=name,
        lo=lo,
        hi=lo + DAY,
        run_id=run_id,
        settings=settings,
        request=Request(pass_gap=True),
    )


def _lines(name: str, drop: int, chance: random.Random) -> Iterator[str]:
    """The lines of a file: some late rows, now and then duplicates and records that can't be read."""
    for number in range(chance.randint(60, 160)):
        late = int(chance.expovariate(1 / 700)) + 30 if drop and chance.random() < 0.08 else 0
        minute = max(drop * NIGHT + chance.randrange(NIGHT) - late, 0)
        wrong = name == "meters" and drop == DROPS - 1 and number == 5
        line = Reading(
            drop, minute, chance.choice(["north", "south", "east", "west"]), 950 if wrong else chance.randint(1, 300)
        )
        yield line.line()
        if drop % 7 == 2 and number < 3:
            yield line.line()
    if name != "gauges" and drop % 9 == 4:
        yield from ['{"id": "cut off, "meter": 3'] * chance.randint(1, 5)


def _mart(settings: Settings) -> None:
    """A mart as a build of dbt leaves it."""
    nodes = {
        "model.tidemark.load_by_hour": {
            "resource_type": "model",
            "name": "load_by_hour",
            "description": "Load by meter and hour.",
            "columns": {"meter": {"description": "The meter."}, "window_start": {"description": "Begin of the hour."}},
            "config": {"follows": "meters"},
            "depends_on": {"nodes": ["source.tidemark.silver.meters_hourly"]},
        },
        "test.tidemark.grain": {
            "resource_type": "test",
            "name": "grain_load_by_hour",
            "attached_node": "model.tidemark.load_by_hour",
            "depends_on": {"nodes": ["model.tidemark.load_by_hour"]},
            "test_metadata": {"name": "grain", "kwargs": {"columns": ["meter", "window_start"]}},
            "raw_code": "select meter, window_start from marts.load_by_hour group by all having count(*) > 1",
        },
    }
    history = DeltaTable(f"{settings.lake}/silver.db/meters_hourly_history").to_pyarrow_table()
    rows = history.filter(pc.equal(history["era"], "live")).select(["meter", "window_start", "n", "total"])
    place = f"{settings.lake}/marts_staging.db/load_by_hour"
    write_deltalake(place, rows)
    published_us = micros(START + (DROPS - 1) * DAY)
    note_shown(settings.home, "meters", ShownMarts(published_us, "", {"load_by_hour": DeltaTable(place).version()}))
    target = settings.home / "dbt" / "target"
    target.mkdir(parents=True)
    (target / "manifest.json").write_text(json.dumps({"nodes": nodes}))


def pages(site: Path) -> dict[str, str]:
    """The pages by the names of their pictures."""
    published = f"runs/meters/scheduled-{START + (DROPS - 3) * DAY:%Y-%m-%d}.html"
    restated = next(p for p in sorted((site / "why/meters/meters_hourly").iterdir()) if "Revision 1" in p.read_text())
    return {
        "overview": "index.html",
        "source": "sources/meters.html",
        "run": published,
        "quarantine": "quarantine/meters.html",
        "late": "late/meters.html",
        "window": str(restated.relative_to(site)),
        "state": "why/meters/meters/north.html",
        "marts": "marts.html",
        "mart": "marts/load_by_hour.html",
        "glossary": "glossary.html",
    }


def take(site: Path, out: Path) -> None:
    """Write a picture of each page for each size and scheme; long pages are cut."""
    out.mkdir(parents=True, exist_ok=True)
    with browser() as started:
        for (width, height), scheme in ((size, scheme) for size in SIZES for scheme in ("light", "dark")):
            visit = Visit(started, (width, height), scheme=scheme)
            for name, page in pages(site).items():
                if name != "overview" and (width, scheme) not in TAKEN:
                    continue
                visit.open((site / page).as_uri())
                visit.tab.wait_for_timeout(400)
                save(visit.tab.screenshot(), out / f"{name}-{width}-{scheme}.png")
                assert visit.wrong == [], visit.wrong
            visit.close()


def save(screenshot: bytes, path: Path) -> None:
    """Write a picture with few colours, at most 960 pixels wide: all of them are a part of the repository."""
    with Image.open(BytesIO(screenshot)) as whole:
        small = whole.convert("RGB")
        if small.width > WIDEST:
            small = small.resize((WIDEST, round(small.height * WIDEST / small.width)), Image.Resampling.LANCZOS)
        small.quantize(24, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="a lake that an earlier call made, or the place for one")
    home = parser.parse_args().home
    with tempfile.TemporaryDirectory() as folder:
        home = home or Path(folder)
        is_there = (home / "sources").is_dir()
        settings = (
            Settings(home=home, landing=home / "landing", sources=home / "sources") if is_there else lay_out(home)
        )
        site = home / "site"
        with time_machine.travel(START + DROPS * DAY + timedelta(hours=4), tick=True):
            write_site(settings, site)
        take(site, OUT)


if __name__ == "__main__":
    main()
