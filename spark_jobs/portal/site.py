"""The portal as static files: the same pages in a folder, to be opened from a disk or put behind any web server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.gates import data_docs_index
from spark_jobs.portal.assets import ASSETS, EDITOR, SQL_SCRIPT
from spark_jobs.portal.docs import DBT_DOCS, DOCS, docs_file
from spark_jobs.portal.links import Links
from spark_jobs.portal.names import encode_part
from spark_jobs.portal.pages import Portal

MOST_RUNS = 400
"""The number of newest runs of each source that get a page: a year of daily runs."""
ROWS_OF_PAGE, MOST_ROWS = 40, 200
"""The most rows of a page that link to a page with the reasons for the row, and the most such pages in all."""
_HTML = ".html"


def write_site(settings: Settings, folder: Path) -> int:
    """Write the pages into `folder`, over those of an earlier time; returns the number of pages.

    The first MOST_ROWS rows that pages show link to pages with the reasons for them, the newest runs first.
    """
    portal = Portal(settings, is_live=False)
    rows: list[str] = []
    left, count = MOST_ROWS, 0
    for name in _names(portal):
        links = Links(name, most_rows=min(left, ROWS_OF_PAGE))
        _write(folder, name, portal.page(name, links=links))
        fresh = [row for row in links.rows if row not in rows]
        rows, left, count = [*rows, *fresh], left - len(fresh), count + 1
    for name in rows:
        _write(folder, name, portal.page(name))
    for path, file in ASSETS.items():
        if path in (EDITOR, SQL_SCRIPT):
            continue  # files answer no statement
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / path)
    docs = data_docs_index(settings).parent
    if docs.is_dir():
        shutil.copytree(docs, folder / DOCS, dirs_exist_ok=True)
    described = docs_file(settings, DBT_DOCS)
    if described is not None:
        (folder / DOCS).mkdir(exist_ok=True)
        shutil.copyfile(described, folder / DBT_DOCS)
    return count + len(rows)


def _names(portal: Portal) -> Iterator[str]:
    """The names of all pages except those with the reasons for a row."""
    yield from ("index.html", "glossary.html", "marts.html")
    yield from (f"marts/{encode_part(mart)}{_HTML}" for mart in portal.marts())
    for name, source in portal.sources().items():
        facts = portal.facts(source)
        pages = [("sources", name), ("quarantine", name), ("late", name), *portal.list_pages(source)]
        pages += [("runs", name, run.run_id) for run in facts.runs[:MOST_RUNS]]
        for page in dict.fromkeys([*pages, *([facts.audit_page] if facts.audit_page else [])]):
            yield "/".join(map(encode_part, page)) + _HTML


def _write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
