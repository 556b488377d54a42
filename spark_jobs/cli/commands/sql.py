"""`sql`: queries through the lake server, for people and scripts."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_jobs.cli.output import JsonOption, complain, emit, note, table
from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import TidemarkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PROMPT, CONTINUED = "tidemark> ", "       -> "

SHOWN_ROWS = 1000
"""More rows than a person reads; `--limit 0` shows all."""

_PIECE = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/|;|[^;'"`/-]+|.""", re.DOTALL)


class SqlRefused(TidemarkError):
    """Spark refused or failed a statement. Facts: `condition` (Spark's name of the error), `sqlstate`."""

    code = "sql_refused"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sql)


def sql(
    query: Annotated[str | None, typer.Argument(help="One or more statements; `-` reads standard input.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows to fetch; 0 fetches all.")] = SHOWN_ROWS,
    as_json: JsonOption = False,
) -> None:
    """Run SQL on the lake server: one query, or a prompt."""
    settings = load_settings()
    if query is None and sys.stdin.isatty():
        _prompt(settings, limit)
        return
    text = sys.stdin.read() if query in (None, "-") else str(query)
    with _session(settings) as spark:
        results = [_run(spark, statement, limit) for statement in statements(text)]
    documents = [_document(result) for result in results]
    emit(as_json, documents[0] if len(documents) == 1 else documents, lambda: _tables(results))


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


def _run(spark: SparkSession, statement: str, limit: int) -> pa.Table:
    from pyspark.errors import PySparkException

    try:
        frame = spark.sql(statement)
        result: pa.Table = (frame.limit(limit + 1) if limit else frame).toArrow()
    except PySparkException as error:
        raise _refused(error) from error
    except KeyboardInterrupt:
        spark.interruptAll()
        raise
    if limit and result.num_rows > limit:
        note(f"the first {limit} rows; --limit 0 shows all")
        result = result.slice(0, limit)
    return result


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


def _tables(results: list[pa.Table]) -> Any:
    from rich.console import Group

    shown = [table(one.column_names, _rows(one)) for one in results if one.num_columns]
    return Group(*shown)


def _rows(result: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in result.columns), strict=True)


def _document(result: pa.Table) -> dict[str, Any]:
    """A result for programs: a row is an object by column name."""
    names = distinct(result.column_names)
    return {"columns": names, "rows": [dict(zip(names, row, strict=True)) for row in _rows(result)]}


def distinct(names: list[str]) -> list[str]:
    """The names, of which repeated ones get a number, so that no column of an object is lost: a, a → a, a_2."""
    result: list[str] = []
    for name in names:
        candidates = (f"{name}_{number}" if number > 1 else name for number in itertools.count(1))
        result.append(next(candidate for candidate in candidates if candidate not in result))
    return result


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
    with _session(settings) as spark:
        for text in _typed():
            for statement in statements(text):
                _answer(spark, statement, limit)
    readline.write_history_file(history)


def _typed() -> Iterator[str]:
    """What the user types, up to a line that ends with a semicolon; Ctrl-C drops it, Ctrl-D ends."""
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
        emit(False, None, lambda: _tables([result]))
