"""The files that pages fetch from beside them: style sheets, scripts and the licences of those that others wrote."""

from __future__ import annotations

from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
VENDOR = Path(__file__).parent / "vendor"
STYLES = ("vendor/pico.min.css", "portal.css")
"""The style sheets in the order in which they apply: Pico's, then the portal's own."""
SCRIPT = "portal.js"
"""The one script of a page; it fetches `CHARTS` where a page has a chart."""
CHARTS = "vendor/echarts.min.js"
EDITOR = "vendor/codemirror.min.js"
"""The editor of the SQL page, which `SQL_SCRIPT` fetches."""
SQL_SCRIPT = "sql.js"
"""The script that the SQL page has beside `SCRIPT`."""

ASSETS: dict[str, Path] = {
    **{name: TEMPLATES / name for name in ("portal.css", SCRIPT, SQL_SCRIPT)},
    **{f"vendor/{name}": VENDOR / name for name in ("pico.min.css", "echarts.min.js", "codemirror.min.js")},
    **{f"vendor/licences/{path.name}": path for path in sorted((VENDOR / "licences").iterdir())},
}
"""The files by their paths among the pages."""
KINDS = {".css": "text/css", ".js": "text/javascript", ".md": "text/plain", ".txt": "text/plain"}
"""The media type of an asset by the end of its name."""


def inline_styles() -> str:
    """The style sheets as one text, for a page that is one file by itself."""
    return "\n".join(ASSETS[name].read_text(encoding="utf-8") for name in STYLES)
