"""`why`: the deltas behind a published row, and its revisions with their causes."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import SourceArgument, known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, short_text, table
from spark_jobs.cli.rows import LimitOption, end_truncated, most_rows
from spark_jobs.config import Settings, load_settings

if TYPE_CHECKING:
    from spark_jobs.reads.row_keys import PublishedTable
    from spark_jobs.reads.why import Why
    from spark_jobs.sources import Source

MARTS = "marts."
MOST_CAUSES = 3
"""Causes that a table's cell names before it counts the rest."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(why)


def why(
    source: SourceArgument,
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="silver.<window>, gold.<source>, or the name alone; or marts.<mart>.")
    ],
    key: Annotated[list[str], typer.Argument(help="Values of the key's columns in order, or column=value each.")],
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the files and lines behind a published row.

    Each of its revisions is listed with the lines that caused it.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    from spark_jobs.reads.row_keys import published_table, row_key

    table = _behind_mart(settings, checked, name) if name.startswith(MARTS) else published_table(checked, name)
    values = list(row_key(table, key).values())  # before the server is asked
    with server_session(settings, "tidemark-why") as spark:
        from spark_jobs.reads.why import why as explain
        from spark_jobs.storage.lakes.spark_lake import SparkLake

        explanation = explain(SparkLake(spark), checked, table.name, values, most_rows(limit, as_json=as_json))
    truncated = len(explanation.deltas) < explanation.n_deltas
    emit(as_json, {**asdict(explanation), "truncated": truncated}, lambda: _for_people(explanation))
    end_truncated(as_json and truncated)


def _behind_mart(settings: Settings, source: Source, name: str) -> PublishedTable:
    """The published table of the source from which a mart is made; its key may have the names of the mart's columns.

    Raises:
        ParameterError: there is no such mart, or its rows are not those of a table of the source.
    """
    from spark_jobs.portal.marts import marts
    from spark_jobs.sources import read_sources, unknown_name

    all_marts = marts(settings, read_sources(settings.sources).sources, {})
    mart = all_marts.get(name.removeprefix(MARTS))
    follows = None if mart is None or mart.source != source.name else mart.follows
    if mart is None or follows is None:
        asked = [f"{MARTS}{each.name}" for each in all_marts.values() if each.follows and each.source == source.name]
        read = [] if mart is None else mart.reads
        raise unknown_name(
            name,
            asked,
            expected=f"a mart whose rows are those of one table of {source.name}: {', '.join(asked) or 'none'}",
            next_step=f"name one of them, or {' or '.join(read) or 'the table of silver or gold that the mart reads'}",
        )
    return replace(follows, also={**follows.also, **dict(zip(mart.grain, follows.key, strict=True))})


def _for_people(explanation: Why) -> Group:
    named = ", ".join(f"{column} {value}" for column, value in explanation.key.items())
    if not explanation.revisions:
        return Group(Text(f"{explanation.table} has never had a row with {named}"))
    values = list(explanation.revisions[0].values)
    revisions = [
        (r.revision, r.known_from, r.known_to, *r.values.values(), r.run_id, _causes(r.causes))
        for r in explanation.revisions
    ]
    columns = ["revision", "known_from", "known_to", *values, "published by", "because of"]
    parts: list[Any] = [table(columns, revisions, title=f"{explanation.table}: {named}"), Text()]
    if explanation.revisions[0].known_from <= explanation.since:
        parts.insert(
            1, Text(f"causes of revisions up to {short_text(explanation.since)} (since) are no longer distinguished")
        )
    if explanation.deltas:
        listed = [delta for delta in explanation.deltas[0] if delta not in ("landing", "row_id")]
        rows = [[delta[column] for column in listed] for delta in explanation.deltas]
        parts.append(table(listed, rows, title=_title(explanation)))
    else:
        parts.append(Text("nothing is published under this key now"))
    return Group(*parts)


def _title(explanation: Why) -> str:
    if explanation.n_deltas == 1:
        return "the delta behind it"
    first = (
        "" if len(explanation.deltas) == explanation.n_deltas else f"; the first {len(explanation.deltas):,} are listed"
    )
    return f"the {explanation.n_deltas:,} deltas behind it{first}"


def _causes(causes: list[dict[str, Any]]) -> str:
    places = [f"{'−' if c['diff'] < 0 else '+'}{c['file']}:{short_text(c['line'])}" for c in causes[:MOST_CAUSES]]
    more = len(causes) - len(places)
    return ", ".join(places) + (f" and {more} more" if more > 0 else "")
