"""Spark's messages as sentences: without its classes, stacks and plans, and Tidemark's own sentences as they are."""

from __future__ import annotations

import pytest

from spark_jobs.sql_refusals import own_sentence, sql_refusal

STACK = (
    "\n\tat org.apache.spark.sql.hive.thriftserver.SparkOperation.run(SparkOperation.scala:62)\n\tat java.x(Y.java:1)"
)
THRIFT = "org.apache.hive.service.cli.HiveSQLException: Error running query: "
ANALYSIS = "org.apache.spark.sql.AnalysisException: "
NOT_ALLOWED = (
    "not_allowed: expected a statement that the role reader may run, found x; nothing was run. A reader reads silver"
)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            f"{THRIFT}[UNRESOLVED] {ANALYSIS}[UNRESOLVED] A column; line 1 pos 7;\n'Project ['x]\n+- Relation{STACK}",
            "[UNRESOLVED] A column; line 1 pos 7",
        ),
        (
            f"{THRIFT}[M_G] {ANALYSIS}[M_G] No group. line 1;\nAggregate [a#1]",
            "[M_G] No group. line 1",
        ),
        (
            f"{THRIFT}[P] org.apache.spark.sql.catalyst.parser.ParseException: \n[P] Near 'SELEC'."
            f"\n\n== SQL ==\nSELEC 1\n^^^\n{STACK}",
            "[P] Near 'SELEC'.\n\n== SQL ==\nSELEC 1\n^^^",
        ),
        ("[U] 'false' is not true! SQLSTATE: P0001", "[U] 'false' is not true! SQLSTATE: P0001"),
        # through Spark Connect
        (
            "[TABLE_OR_VIEW_NOT_FOUND] No table `x`.; line 1;\n'Project [*]",
            "[TABLE_OR_VIEW_NOT_FOUND] No table `x`.; line 1",
        ),
        ("AnalysisException: [X] A text\n\nJVM stacktrace:\norg.apache", "[X] A text"),
    ],
)
def test_a_sentence_of_sparks(message: str, sentence: str) -> None:
    assert own_sentence(message) is None
    refusal = sql_refusal(message, "42000", lambda _: False)
    assert refusal.found == sentence
    assert refusal.as_json()["condition"] == sentence.partition("]")[0].lstrip("[")


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (f"{THRIFT}{NOT_ALLOWED}{STACK}", NOT_ALLOWED),
        (f"Error running query: {NOT_ALLOWED}", NOT_ALLOWED),
        ("limit_rows: expected at most 3 rows, found more", "limit_rows: expected at most 3 rows, found more"),
        (
            f"Job aborted: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION]"
            f" below_since: expected a time, found b SQLSTATE: P0001{STACK}",
            "below_since: expected a time, found b",
        ),
    ],
)
def test_a_sentence_of_tidemarks(message: str, sentence: str) -> None:
    assert own_sentence(message) == sentence


def test_a_statement_in_sparks_message_is_no_refusal_of_tidemarks() -> None:
    assert own_sentence(f"{THRIFT}[P] Near 'x'\n\n== SQL ==\nSELEC 'not_allowed: expected nothing'{STACK}") is None
