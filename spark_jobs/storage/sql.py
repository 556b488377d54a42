"""Quoting: the one place where names and text become SQL.

Everything that reaches SQL text from outside goes through `name` (identifiers), `literal` (text) or `whole` (numbers).
Not as named parameters: Delta 4.4's parser leaves those of Spark 4.2 unbound, over Connect whatever the settings.
"""

from __future__ import annotations

from spark_jobs.errors import ParameterError


def name(identifier: str) -> str:
    """An identifier in back quotes; refuses what no table or column of ours can be called."""
    if not identifier or "\x00" in identifier:
        raise ParameterError(
            expected="a column or table name", found=repr(identifier), next_step="name it in the source file"
        )
    return "`" + identifier.replace("`", "``") + "`"


def qualified(*parts: str) -> str:
    """`database`.`table`."""
    return ".".join(name(part) for part in parts)


def literal(text: str) -> str:
    """A string literal that reads back as exactly `text`."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def whole(number: int) -> str:
    """A BIGINT literal; refuses what is no whole number of 64 signed bits."""
    if isinstance(number, bool) or int(number) != number or not -(2**63) <= number < 2**63:
        raise ParameterError(expected="a whole number of 64 signed bits", found=repr(number))
    return f"{int(number)}L"
