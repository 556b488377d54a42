"""`report`: a source on one HTML page, or the whole portal as static files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from spark_jobs.cli.arguments import known_source
from spark_jobs.cli.output import JsonOption, emit
from spark_jobs.cli.progress import working
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.model import pluralize


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    source: Annotated[str | None, typer.Argument(help="The source whose page is written; with --site none.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file to write; default: reports/SOURCE.html in TIDEMARK_HOME.", dir_okay=False),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option("--site", help="Write all pages of the portal into this folder instead.", file_okay=False),
    ] = None,
    dbt_docs: Annotated[
        bool, typer.Option("--dbt-docs", help="Write dbt's own documentation of the marts, which the portal links to.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a source's page, or all pages of the portal, as HTML.

    A source's page has its drops, frontiers, quarantine, lateness, windows, chains and runs. With --site it
    writes all of the portal: every source, run and mart, quarantine, and the files and lines behind published rows. It
    reads the lake's files, and asks no server.
    """
    settings = load_settings()
    asked = [source is not None, site is not None, dbt_docs]
    if sum(asked) != 1 or (source is None and out is not None):
        raise ParameterError(
            expected="a source, --site DIR or --dbt-docs",
            found=f"{sum(asked)} of them" if sum(asked) != 1 else "--out without a source",
            next_step="`tidemark report SOURCE --out FILE`, `tidemark report --site DIR` or `… --dbt-docs`",
        )
    if dbt_docs:
        from spark_jobs.publish.dbt_docs import write_dbt_docs

        with working("report --dbt-docs"):
            written, seconds = write_dbt_docs(settings)
        emit(as_json, {"path": str(written), "seconds": round(seconds, 1)}, lambda: Text(f"dbt's docs: {written}"))
        return
    if site is not None:
        from spark_jobs.portal.site import write_site

        with working("report --site"):
            pages = write_site(settings, site)
        first = str(site / "index.html")
        emit(
            as_json, {"path": first, "pages": pages}, lambda: Text(f"{pluralize(pages, 'page')}; the first is {first}")
        )
        return
    assert source is not None, "checked above"
    checked = known_source(settings, source)
    path = out or settings.home / "reports" / f"{source}.html"
    if out is not None and not out.parent.is_dir():
        raise ParameterError(
            expected="a file in a folder that is there", found=str(out), next_step=f"make the folder {out.parent}"
        )
    from spark_jobs.portal.pages import Portal

    page = Portal(settings, is_live=False).report(checked)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    emit(as_json, {"path": str(path), "source": source}, lambda: Text(f"report: {path}"))
