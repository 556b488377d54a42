"""Where the Data Docs of an installation stand among the pages."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.gates import data_docs_index
from spark_jobs.gates.project import run_name
from spark_jobs.storage.shown_marts import dbt_docs_file

DOCS = "docs"
"""The folder of Great Expectations' Data Docs below the pages."""
DBT_DOCS = f"{DOCS}/dbt.html"
"""dbt's documentation of the models, among the pages. It is one program: what serves it keeps it apart."""


def docs_file(settings: Settings, path: str) -> Path | None:
    """The file of the Data Docs, or of dbt's, that a page's link means; None if there is none, or it lies elsewhere."""
    if path == DBT_DOCS:
        return file if (file := dbt_docs_file(settings.home)).is_file() else None
    root = data_docs_index(settings).parent.resolve()
    file = (root / path.removeprefix(f"{DOCS}/")).resolve()
    return file if file.is_relative_to(root) and file.is_file() else None


def docs_of_run(settings: Settings, run_id: str) -> list[tuple[str, str]]:
    """What a run's gates left in the Data Docs: the name of each suite, and the path of its newest page."""
    root = data_docs_index(settings).parent
    newest: dict[str, str] = {}
    for page in sorted(root.glob(f"validations/*/{run_name(run_id)}/*/*.html")):
        newest[page.relative_to(root).parts[1]] = f"{DOCS}/{page.relative_to(root)}"
    return sorted(newest.items())
