"""The refusal of a statement by Spark, made of Spark's message: its sentence without the stack and the plan."""

from __future__ import annotations

import re
from collections.abc import Callable

from spark_jobs.errors import TidemarkError, first_condition

_MISSING_MART = re.compile(r"`marts`\.`([^`]+)`")
"""A mart's name, as Spark writes it in an error."""
_FOR_DEVELOPERS = re.compile(r"\n+JVM stacktrace|;?\n'[A-Z]|;\n!?[A-Z]|\n\s*at [\w.$]+\(")
"""The begin of what follows the sentence: a stack, or a plan."""
_CLASS = r"(?:[a-z]\w*\.)+\w+(?:Exception|Error):\s*"
_IN_FRONT = re.compile(rf"\A(?:{_CLASS}|Error running query: |\[[\w.]+\] (?={_CLASS})|\[?\w*Exception\]?:?\s+)+")
"""The classes of the error in front of the sentence, in the forms of Spark Connect and of the Thrift server."""
_OWN = re.compile(
    r"(?:\A|\[USER_RAISED_EXCEPTION\] )([a-z]\w*: expected .*?)(?=\s+SQLSTATE: [0-9A-Z]{5}|\Z)", re.DOTALL
)
"""The sentence of the guard, or of a function that reads the past."""


class SqlRefused(TidemarkError):
    """Spark refused or failed a statement. Facts: `condition` (Spark's name of the error), `sqlstate`."""

    code = "sql_refused"


def sql_refusal(message: str, sqlstate: str | None, is_built: Callable[[str], bool]) -> SqlRefused:
    """The refusal that Spark's `message` says.

    `is_built` is true for a mart that was built, although readers do not see it.
    """
    sentence = _sentence(message)
    condition = first_condition(sentence)
    consequence, next_step = "", "correct the statement; `tidemark sql 'SHOW TABLES IN silver'` lists what there is"
    mart = _MISSING_MART.search(sentence)
    if mart is not None and condition == "TABLE_OR_VIEW_NOT_FOUND":
        consequence, next_step = _about_mart(mart[1], is_built=is_built(mart[1]))
    return SqlRefused(
        expected="a statement that Spark accepts",
        found=sentence,
        consequence=consequence,
        next_step=next_step,
        condition=condition,
        sqlstate=sqlstate,
    )


def own_sentence(message: str) -> str | None:
    """The sentence of Tidemark's own refusal in Spark's message, such as that of the guard; None if it has none."""
    match = _OWN.search(_sentence(message))
    return None if match is None else match[1]


def _sentence(message: str) -> str:
    return _IN_FRONT.sub("", _FOR_DEVELOPERS.split(message.strip())[0].strip()).strip()


def _about_mart(mart: str, *, is_built: bool) -> tuple[str, str]:
    """The consequence and next step for a mart that is not there: no version of it has passed its tests so far."""
    if is_built:
        return (
            f"marts.{mart} is built, and no version of it has passed its tests so far",
            "`tidemark quality SOURCE` names the failed tests; correct the model or the data, and run a drop again",
        )
    return (
        f"marts.{mart} is not built: there is no such model, its build failed, or its source was reset",
        "`tidemark sql 'SHOW VIEWS IN marts'` lists the marts; the next run of a source builds its new models",
    )
