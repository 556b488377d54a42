"""`python -m docs.generate`: write the generated pages, in place of those that were there."""

from __future__ import annotations

import shutil

from docs.generate import reference_pages
from docs.generate.documents import ROOT

REFERENCE_FOLDER = ROOT / "docs" / "reference"


def write_pages() -> None:
    """Replace `docs/reference/` with the pages of the present code."""
    pages = reference_pages()
    shutil.rmtree(REFERENCE_FOLDER, ignore_errors=True)
    for path, text in pages.items():
        file = REFERENCE_FOLDER / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages()
