"""The paths of an installation's Data Docs among the pages."""

from __future__ import annotations

import glob
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.gates import data_docs_index
from spark_jobs.gates.project import page_name, run_name
from spark_jobs.storage.names.shown_marts import dbt_docs_file

DOCS = "docs"
"""The folder of Great Expectations' Data Docs below the pages."""
DBT_DOCS = f"{DOCS}/dbt.html"
"""The path of dbt's documentation of the models. The page is a program, so a server keeps it apart from the others."""


def docs_file(settings: Settings, path: str) -> Path | None:
    """The file of the Data Docs, or of dbt's, at a page's `path`; None if it does not exist or is in another folder."""
    if path == DBT_DOCS:
        return file if (file := dbt_docs_file(settings.home)).is_file() else None
    root = data_docs_index(settings).parent.resolve()
    try:
        file = (root / path.removeprefix(f"{DOCS}/")).resolve()
        return file if file.is_relative_to(root) and file.is_file() else None
    except (OSError, ValueError):  # no file system has such a name
        return None


def docs_of_run(settings: Settings, source: str, run_id: str) -> list[tuple[str, str]]:
    """The suites of a source's run in the Data Docs, sorted: the name of each suite, and the path of its newest page.

    Runs of several sources may have the same id, such as those of one schedule.
    """
    root = data_docs_index(settings).parent
    newest: dict[str, str] = {}
    for page in sorted(root.glob(f"validations/*/{run_name(run_id)}/*/{glob.escape(page_name(source))}")):
        newest[page.relative_to(root).parts[1]] = f"{DOCS}/{page.relative_to(root)}"
    return sorted(newest.items())
