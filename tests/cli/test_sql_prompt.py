r"""The prompt of `tidemark sql`, on a pseudo-terminal: statements, history, completion and what `\d` says of tables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spark_jobs.cli.sql_names import NamesInSql
from spark_jobs.statements import ends_statement, one_line
from tests.connect_program import environment
from tests.terminal import Terminal

PROGRAM = """
import readline
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.cli.commands import sql
from spark_jobs.cli.sql_names import NamesInSql
from spark_jobs.cli.sql_prompt import Prompt
from spark_jobs.statements import statements

spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
spark.sql("CREATE DATABASE silver")
spark.sql("CREATE VIEW silver.hourly (meter COMMENT 'The meter that was read.', load) AS SELECT 'north', 2.5D")

def answer(text):
    for statement in statements(text):
        sql._answer(spark, statement, 10, sql._write_tables)

for _ in range(2):
    readline.clear_history()
    Prompt(Path(sys.argv[1]), NamesInSql(spark), answer).run()
"""


@pytest.mark.spark
@pytest.mark.turns
def test_a_conversation_over_two_prompts(tmp_path: Path) -> None:
    history = tmp_path / "history"
    command = [sys.executable, "-c", PROGRAM, str(history)]
    with Terminal(command, env=environment(tmp_path), cwd=tmp_path) as terminal:
        terminal.expect("tidemark> ", timeout_s=300)
        terminal.type("\\d\n")
        assert "silver    table  hourly" in terminal.expect("tidemark> ")
        terminal.type("\\d hourly\n")
        described = terminal.expect("tidemark> ")
        assert "silver.hourly\n" in described
        assert "meter   string  The meter that was read." in described
        assert "load    double" in described
        terminal.type("\\d houry\n")
        assert "did you mean hourly" in terminal.expect("tidemark> ")
        # completion of a keyword, a table, and a column of that table; a statement of two lines
        terminal.type("SEL\t1 AS n, l.* FROM silver.h\tl\n")
        terminal.expect("       -> ")
        terminal.type("WHERE me\t= 'north';\n")
        assert "1  north   2.5" in terminal.expect("tidemark> ")
        terminal.type("SELECT half")
        # a key before readline waits for one is seen late
        terminal.expect("half")
        terminal.type("\x03")
        terminal.expect("tidemark> ")
        terminal.type("SELECT nothing;\n")
        assert "sql_refused" in terminal.expect("tidemark> ")
        terminal.type("\\x\n")
        assert r"\x is no command" in terminal.expect("tidemark> ")
        # the second prompt has the history of the first
        terminal.type("\\q\n")
        terminal.expect("tidemark> ")
        assert history.stat().st_mode & 0o777 == 0o600
        assert "SELECT 1 AS n, l.* FROM silver.hourly l WHERE meter = 'north';" in history.read_text().splitlines()
        # two entries back: the statement that was refused
        terminal.type("\x1b[A\x1b[A\n")
        assert "sql_refused" in terminal.expect("tidemark> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert history.read_text().splitlines().count("SELECT nothing;") == 2


class Catalog:
    """As much of a session as the completion of keywords needs: a server without tables."""

    def sql(self, statement: str) -> Catalog:
        return self

    def toArrow(self) -> dict[str, Catalog]:
        return {"namespace": self}

    def to_pylist(self) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("word", "found"), [("SEL", ["SELECT "]), ("wher", ["where "]), ("nulls", ["nulls "]), ("silver.", []), ("xyz", [])]
)
def test_keywords_are_completed_as_they_were_begun(word: str, found: list[str]) -> None:
    assert NamesInSql(Catalog()).completions(word, word) == found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT 1; /* done */\n", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT /* 1;", False),
        ("SELECT 1 -- no end;", False),
        ("", False),
    ],
)
def test_a_statement_ends_with_a_semicolon_outside_quotes_and_comments(text: str, ends: bool) -> None:
    assert ends_statement(text) is ends


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SELECT 1,\n   2;\n", "SELECT 1, 2;"),
        ("SELECT 1 -- one\n, 2;", "SELECT 1 , 2;"),
        ("SELECT '  a  ',\t\"-- b\";", "SELECT '  a  ', \"-- b\";"),
        ("SELECT /* x */ 1;", "SELECT 1;"),
    ],
)
def test_a_statement_of_several_lines_is_one_line_of_the_history(text: str, line: str) -> None:
    assert one_line(text) == line
