"""A guessed source as people and programs see it, in `init` and `try`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.output import table
from spark_jobs.model import pluralize

if TYPE_CHECKING:
    from spark_jobs.landing.guess import Guess

NameOption = Annotated[
    str | None,
    typer.Option(
        help="The source's name; default: that of the first file without its date, or of a folder above it if the"
        " file or its folder is called after a date alone."
    ),
]
EntityOption = Annotated[str | None, typer.Option(help="The column that says which entity a row changes.")]
TimeOption = Annotated[str | None, typer.Option(help="The column of the event time.")]


def guess_view(guess: Guess, title: str, most: int) -> Group:
    """The columns of a guess, the numbers that speak for it, and at most `most` of the rejected records."""
    source = guess.source
    columns = [(name, column.type, source.header_name(name)) for name, column in source.columns.items()]
    count = sum(guess.rejected.values())
    rules = ", ".join(f"{n:,} {rule}" for rule, n in sorted(guess.rules.items(), key=lambda item: (-item[1], item[0])))
    rejected = f", {count:,} rejected ({rules})" if count else ""
    lines = [
        f"entity {source.entity}, event time {source.primary_timeline}; {pluralize(guess.rows, 'row')} read{rejected}"
    ]
    first_rejects = guess.rejects[:most]
    lines += [f"  {r['file']}{_line(r['line'])}: {r['reason']}" for r in first_rejects]
    lines += [f"  and {count - len(first_rejects):,} more"] if count > len(first_rejects) else []
    lines += [f"  no type fits, so left out: {', '.join(guess.left_out)}"] if guess.left_out else []
    lines += ["how sure it is:", *(f"  {sentence}" for sentence in guess.evidence)]
    return Group(table(["column", "type", "in the files"], columns, title=title), Text("\n".join(lines)))


def guess_document(guess: Guess) -> dict[str, Any]:
    """A guess as plain data."""
    source = guess.source
    return {
        "source": source.name,
        "entity": source.entity,
        "event_time": source.primary_timeline,
        "columns": {name: column.type for name, column in source.columns.items()},
        "rows": guess.rows,
        "rejected": guess.rejected,
        "rejected_by_rule": guess.rules,
        "rejects": guess.rejects,
        "left_out": list(guess.left_out),
        "evidence": list(guess.evidence),
    }


def _line(line: int | None) -> str:
    """A line of a file; a file that is rejected whole has none."""
    return "" if line is None else f", line {line}"
