"""`sql`: queries through the lake server, for people and scripts."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_jobs.cli.output import JsonOption, complain, note, show
from spark_jobs.cli.rows import Fetched, LimitOption, end_truncated, fetch, most_rows, view_of, write_document
from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import TidemarkError
from spark_jobs.failures import recognized

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROMPT, CONTINUED = "tidemark> ", "       -> "

SHOWN_ROWS = 1000
"""More rows than a person reads."""

_PIECE = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/|;|[^;'"`/-]+|.""", re.DOTALL)


class SqlRefused(TidemarkError):
    """Spark refused or failed a statement. Facts: `condition` (Spark's name of the error), `sqlstate`."""

    code = "sql_refused"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sql)


def sql(
    query: Annotated[str | None, typer.Argument(help="One or more statements; `-` reads standard input.")] = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run SQL on the lake server: one query, or a prompt.

    --json prints all rows as one document (a list of documents for several statements), however many they are.
    """
    settings = load_settings()
    most = most_rows(limit, as_json=as_json, shown=SHOWN_ROWS)
    if query is None and sys.stdin.isatty():
        _prompt(settings, most)
        return
    text = sys.stdin.read() if query in (None, "-") else str(query)
    with _session(settings) as spark:
        results = [_run(spark, statement, most) for statement in statements(text)]
    if not as_json:
        show(_tables(results))
        return
    _write_documents(results)
    end_truncated(any(result.truncated for result in results))


def statements(text: str) -> list[str]:
    """The statements of a text, split at semicolons outside quotes and comments."""
    found, current = [], ""
    for piece in _PIECE.findall(text + ";"):
        if piece != ";":
            current += piece
            continue
        if re.sub(r"--[^\n]*|/\*.*?\*/", "", current, flags=re.DOTALL).strip():
            found.append(current.strip())
        current = ""
    return found


def _run(spark: SparkSession, statement: str, limit: int) -> Fetched:
    from pyspark.errors import PySparkException

    from spark_jobs.session import work_on

    settings = load_settings()
    with work_on(spark, settings):
        try:
            return fetch(spark.sql(statement), limit)
        except PySparkException as error:
            raise (recognized(error, settings) or _refused(error)) from error


def _refused(error: Any) -> SqlRefused:
    sentence = re.split(r"\n+JVM stacktrace|;?\n'[A-Z]", str(error).strip())[
        0
    ]  # what follows is for Spark's developers
    return SqlRefused(
        expected="a statement that Spark accepts",
        found=re.sub(r"^\[?\w*Exception\]?:?\s*", "", sentence),
        consequence="",
        next_step="correct the statement; `tidemark sql 'SHOW TABLES IN silver'` lists what there is",
        condition=error.getCondition(),
        sqlstate=error.getSqlState(),
    )


def _tables(results: list[Fetched]) -> Any:
    from rich.console import Group

    return Group(*(view_of(one) for one in results if one.columns))


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


def _prompt(settings: Settings, limit: int) -> None:
    import readline

    history = settings.home / "sql_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    note("statements end with a semicolon; exit with Ctrl-D")
    try:
        with _session(settings) as spark:
            for text in _typed():
                for statement in statements(text):
                    _answer(spark, statement, limit)
    finally:
        readline.write_history_file(history)


def _typed() -> Iterator[str]:
    """The statement that the user types, up to a line that ends with a semicolon; Ctrl-C drops it, Ctrl-D ends."""
    text = ""
    while True:
        try:
            text += input(CONTINUED if text else PROMPT) + "\n"
        except EOFError:
            return
        except KeyboardInterrupt:
            text = ""
            note("")
            continue
        if text.strip() in ("exit", "quit"):
            return
        if text.rstrip().endswith(";"):
            yield text
            text = ""


def _answer(spark: SparkSession, statement: str, limit: int) -> None:
    try:
        result = _run(spark, statement, limit)
    except SqlRefused as refusal:
        complain(refusal, as_json=False)
    except KeyboardInterrupt:
        note("interrupted")
    else:
        show(_tables([result]))
