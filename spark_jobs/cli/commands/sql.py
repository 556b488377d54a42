"""`sql`: queries through the lake server, for people and scripts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_jobs.cli.formats import write_csv, write_markdown
from spark_jobs.cli.output import JsonOption, complain, note, show
from spark_jobs.cli.rows import Fetched, LimitOption, end_truncated, fetch, most_rows, view_of, write_document
from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.sql_refusals import SqlRefused, sql_refusal
from spark_jobs.statements import statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN_ROWS = 1000
"""More rows than a person reads."""

Printer = Callable[[list[Fetched]], None]
"""A function that prints the results of statements."""

HISTORY = "sql_history"
"""The name of the file in the home that keeps the statements which were typed."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sql)


def sql(
    query: Annotated[str | None, typer.Argument(help="One or more statements; `-` reads standard input.")] = None,
    layout: Annotated[
        str,
        typer.Option("--format", metavar="table|csv|markdown", help="The layout of rows; csv has all rows."),
    ] = "table",
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run SQL on the lake server: statements, or a prompt.

    Without a statement, on a terminal, it is a prompt with a history and completion; `\\?` there lists its commands.
    `--json` prints all rows as one document (a list of documents for several statements), however many they are, and
    `--format csv` all rows with a line of column names. Several results have an empty line between them.
    """
    settings = load_settings()
    show_results = _printer(layout, as_json=as_json)
    most = most_rows(limit, as_json=as_json or layout == "csv", for_people=SHOWN_ROWS)
    if query is None and sys.stdin.isatty():
        _ask(settings, most, show_results)
        return
    text = sys.stdin.read() if query in (None, "-") else str(query)
    with _session(settings) as spark:
        results = [_run(spark, statement, most) for statement in statements(text)]
    show_results(results)
    if as_json or layout == "csv":
        end_truncated(any(result.truncated for result in results))


def _printer(layout: str, *, as_json: bool) -> Printer:
    """The function that prints results.

    Raises:
        ParameterError: there is no such layout, or a layout is asked for beside JSON.
    """
    printers: dict[str, Printer] = {
        "table": _write_tables,
        "csv": partial(_each, write_csv),
        "markdown": partial(_each, write_markdown),
    }
    if layout not in printers or (as_json and layout != "table"):
        raise ParameterError(
            expected="--format table, csv or markdown, or --json alone",
            found=f"--format {layout}{' and --json' if as_json else ''}",
            next_step="for one document of JSON say --json, as for every command",
        )
    return _write_documents if as_json else printers[layout]


def _run(spark: SparkSession, statement: str, limit: int) -> Fetched:
    from pyspark.errors import PySparkException

    from spark_jobs.failures import recognize
    from spark_jobs.session import work_on

    settings = load_settings()
    with work_on(spark, settings):
        try:
            return fetch(spark.sql(statement), limit)
        except PySparkException as error:
            raise (recognize(error, settings) or _refusal(error, spark)) from error


def _refusal(error: Any, spark: SparkSession) -> SqlRefused:
    from spark_jobs.storage.names.shown_marts import STAGING

    return sql_refusal(str(error), error.getSqlState(), lambda mart: spark.catalog.tableExists(f"{STAGING}.{mart}"))


def _write_tables(results: list[Fetched]) -> None:
    from rich.console import Group

    show(Group(*(view_of(one) for one in results if one.columns)))


def _each(write: Callable[[Fetched], None], results: list[Fetched]) -> None:
    """Write the results that have columns, with an empty line between two of them."""
    for number, result in enumerate(result for result in results if result.columns):
        if number:
            sys.stdout.write("\n")
        write(result)


def _write_documents(results: list[Fetched]) -> None:
    """One document, or a list of as many as there are statements."""
    first, last = ("", "\n") if len(results) == 1 else ("[", "]\n")
    sys.stdout.write(first)
    for number, result in enumerate(results):
        sys.stdout.write(", " if number else "")
        write_document(result)
    sys.stdout.write(last)


@contextlib.contextmanager
def _session(settings: Settings) -> Iterator[SparkSession]:
    from spark_jobs.session import open_session

    session = open_session(settings.model_copy(update={"spark": "connect"}), "tidemark-sql")
    try:
        yield session
    finally:
        session.stop()


def _ask(settings: Settings, limit: int, show_results: Printer) -> None:
    """Open the prompt."""
    from spark_jobs.cli.sql_names import NamesInSql
    from spark_jobs.cli.sql_prompt import Prompt

    with _session(settings) as spark:

        def answer(text: str) -> None:
            for statement in statements(text):
                if not _answer(spark, statement, limit, show_results):
                    return

        Prompt(settings.home / HISTORY, NamesInSql(spark), answer).run()


def _answer(spark: SparkSession, statement: str, limit: int, show_results: Printer) -> bool:
    """Run a statement of the prompt and print its result; returns False if it failed or was interrupted."""
    try:
        show_results([_run(spark, statement, limit)])
    except TidemarkError as refusal:
        complain(refusal, as_json=False)
        return False
    except KeyboardInterrupt:
        note("interrupted")
        return False
    return True
