"""The Data Docs without the internet: Great Expectations' own pages, in a frame that fetches nothing.

Its templates load styles and scripts from five places on the internet, and without them the index is empty. Those that
do are replaced here by templates of the same names; all others, and what the pages say, stay Great Expectations' own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from great_expectations.render.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import ChoiceLoader, FileSystemLoader

TEMPLATES = Path(__file__).parent / "docs_templates"


def _ours_first(environment: Any) -> None:
    environment.loader = ChoiceLoader([FileSystemLoader(TEMPLATES), environment.loader])


class OfflinePageView(DefaultJinjaPageView):
    """A page of a validation result or of a suite."""

    def __init__(self, **directories: Any) -> None:
        super().__init__(**directories)
        _ours_first(self.env)


class OfflineIndexView(DefaultJinjaIndexPageView):
    """The index of results and suites."""

    def __init__(self, **directories: Any) -> None:
        super().__init__(**directories)
        _ours_first(self.env)
