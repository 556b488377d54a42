"""The Data Docs without the internet: Great Expectations' own pages, in templates that fetch nothing.

Great Expectations' templates load styles and scripts from five places on the internet, and without them the index is
empty. Templates that do so are replaced here by templates of the same names. All others, and the content of the pages,
stay Great Expectations' own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from great_expectations.render.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import BytecodeCache, ChoiceLoader, FileSystemLoader
from jinja2.bccache import Bucket

TEMPLATES = Path(__file__).parent / "docs_templates"


class _Compiled(BytecodeCache):
    """The templates that this process has compiled. Without it each view, having an environment of its own, would
    compile them again."""

    def __init__(self) -> None:
        self._codes: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._codes:
            bucket.bytecode_from_string(self._codes[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key] = bucket.bytecode_to_string()


_COMPILED = _Compiled()


def _ours_first(environment: Any) -> None:
    environment.loader = ChoiceLoader([FileSystemLoader(TEMPLATES), environment.loader])
    environment.bytecode_cache = _COMPILED


class OfflinePageView(DefaultJinjaPageView):
    """The view of a page of a validation result or of a suite."""

    def __init__(self, **directories: Any) -> None:
        super().__init__(**directories)
        _ours_first(self.env)


class OfflineIndexView(DefaultJinjaIndexPageView):
    """The view of the index of results and suites."""

    def __init__(self, **directories: Any) -> None:
        super().__init__(**directories)
        _ours_first(self.env)
