"""Measures of the gate after `window`: windows as they would be published, where this run changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spark_jobs.gates.measures.query import Measurement, Part, listed, measure, texts, timestamp, violation
from spark_jobs.gates.measures.touching import touching
from spark_jobs.restatement.definitions import Definition
from spark_jobs.restatement.touched import Range, Scope
from spark_jobs.sources.windows import SessionWindow, SlidingWindow, TumblingWindow
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.tables import LATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def silver(
    spark: SparkSession,
    scope: Scope,
    definitions: Sequence[Definition],
    *,
    token: int,
    ranges: Mapping[str, Sequence[Range]] | None = None,
) -> Measurement:
    """What the attempt `token` would publish of these definitions, against the publication that `scope` starts from.

    Reads each history table where the attempt wrote, and the touching updates. `ranges` are the touched times per
    definition, by which files are skipped; without them all windows are read.
    """
    parts = [_windows(scope, d, token, (ranges or {}).get(d.name)) for d in definitions]
    parts += [_rows_due(scope, definitions), _late(scope, definitions, token)]
    names = (
        "repeated_windows",
        "windows_of_wrong_length",
        "windows_without_rows",
        "windows_without_key",
        "changed_without_revision",
        "changes_at_wrong_time",
        "closings_of_nothing",
        "late_rows_due",
        "late_rows_recorded",
        "rows_due",
        "rows_windowed",
    )
    return measure(spark, parts, dict.fromkeys(names, 0))


def visible(publication: Publication, token: int) -> str:
    """SQL: whether a row counts once the attempt `token` is published."""
    return f"(token <= {publication.settled} OR token IN {listed([*publication.tokens, token])})"


def _windows(scope: Scope, definition: Definition, token: int, ranges: Sequence[Range] | None) -> Part:
    """One row per changed (key, start): how many of its windows stand, what is wrong with the rows of this attempt."""
    table = definition.table()
    identity = [name(column) for column in definition.identity]
    own, live = f"token = {token}", "era = 'live'"
    known_from = timestamp(scope.known_from_us)
    missing = " OR ".join(f"{column} IS NULL" for column in [*identity, "window_end"])
    right_time = (
        f"IF({live}, known_from = {known_from} AND known_to IS NULL, known_to = {known_from} AND known_from < known_to)"
    )
    rows = _row_counter(definition)
    columns = [
        f"{literal(definition.name)} AS definition",
        *identity,
        f"coalesce(collect_list(IF({live}, known_from, NULL)), array()) AS opened",
        f"coalesce(collect_list(IF({live}, NULL, known_from)), array()) AS closed",
        f"max(IF({own} AND {live}, revision, NULL)) AS new_revision",
        f"max(IF({own} AND NOT {live}, revision, NULL)) AS closed_revision",
        f"count_if({own} AND {live} AND {_wrong_length(definition)}) AS wrong_length",
        f"count_if({own} AND {live} AND {rows or 1} < 1) AS without_rows",
        f"count_if({own} AND ({missing})) AS without_key",
        f"count_if({own} AND NOT coalesce({right_time}, false)) AS wrong_time",
        f"sum(IF({own}, IF({live}, 1, -1) * {rows or 0}, 0)) AS gained_rows",
    ]
    adds = {
        "repeated_windows": violation(
            "size(array_except(opened, closed)) > 1 OR size(array_distinct(opened)) < size(opened)"
        ),
        "closings_of_nothing": violation(
            "size(array_except(closed, opened)) > 0 OR size(array_distinct(closed)) < size(closed)"
        ),
        "changed_without_revision": violation("new_revision <> coalesce(closed_revision + 1, 0)"),
        "windows_of_wrong_length": "wrong_length",
        "windows_without_rows": "without_rows",
        "windows_without_key": "without_key",
        "changes_at_wrong_time": "wrong_time",
    }
    if _counts_each_row_once(scope, definition):
        adds["rows_windowed"] = "gained_rows"
    relation = (
        f"SELECT {', '.join(columns)} FROM {qualified(table.database, table.table)}"
        f" WHERE era IN ('live', 'closing') AND {visible(scope.publication, token)}"
        f" AND ({own} OR {_near(definition, ranges)})"
        f" GROUP BY {', '.join(identity)} HAVING bool_or({own})"
    )
    return Part(
        relation, adds, ("definition", *definition.identity, "opened", "closed", "new_revision", "closed_revision")
    )


def _near(definition: Definition, ranges: Sequence[Range] | None) -> str:
    """Whether a window can be affected by a row of the touched ranges; true where they are not given."""
    if not ranges:
        return "true" if ranges is None else "false"
    # twice the span: the published windows that a changed session was part of reach one further
    reach = 2 * definition.span_us + 1
    lo, hi = min(lo for lo, _ in ranges) - reach, max(hi for _, hi in ranges) + reach
    return f"(window_end >= {timestamp(lo)} AND window_start <= {timestamp(hi)})"


def _wrong_length(definition: Definition) -> str:
    window = definition.source.windows[definition.name]
    if isinstance(window, SessionWindow):
        return "window_end < window_start"
    return f"unix_micros(window_end) - unix_micros(window_start) <> {definition.span_us}"


def _row_counter(definition: Definition) -> str | None:
    """The aggregate that counts a window's rows, if the definition has one."""
    aggregates = definition.source.windows[definition.name].aggregates
    return next((name(n) for n, a in aggregates.items() if a.function == "count" and a.column is None), None)


def _counts_each_row_once(scope: Scope, definition: Definition) -> bool:
    """Whether each row with a key and a time is in exactly one window, so that rows can be balanced."""
    window = definition.source.windows[definition.name]
    once = isinstance(window, SessionWindow | TumblingWindow) and definition.limit_us is None
    # after a change of definition only windows that differ are written: there is no balance of what was gained
    return once and not scope.everything and _row_counter(definition) is not None


def _rows_due(scope: Scope, definitions: Sequence[Definition]) -> Part:
    """What the touching updates ask of the windows: to count rows, and to record late ones.

    A row is late iff the first window that could hold it ended before its drop began. (design.md, `late`)
    """
    drops = scope.source.drops
    lo = f"({drops.start_us} + seq_no * {drops.every_us})"
    counted = [f"IF({_has_key_and_time(d)}, diff, 0)" for d in definitions if _counts_each_row_once(scope, d)]
    late = [f"IF({_has_key_and_time(d)} AND {_first_end(d)} < {lo}, 1, 0)" for d in _checked_for_late(definitions)]
    adds = {"rows_due": " + ".join(counted) or "0", "late_rows_due": " + ".join(late) or "0"}
    return Part(touching(scope), adds, ("row_id", "entity", "event_time", "time", "seq_no", "diff"))


def _late(scope: Scope, definitions: Sequence[Definition], token: int) -> Part:
    recorded = (
        f"SELECT * FROM {qualified(LATE.database, LATE.table)} WHERE source = {literal(scope.source.name)}"
        f" AND token = {token} AND definition IN {texts([d.name for d in _checked_for_late(definitions)])}"
    )
    shows = ("definition", "row_id", "entity", "event_time", "action")
    return Part(recorded, {"late_rows_recorded": "1"}, shows)


def _checked_for_late(definitions: Sequence[Definition]) -> list[Definition]:
    return [d for d in definitions if isinstance(d.source.windows[d.name], SlidingWindow | SessionWindow)]


def _first_end(definition: Definition) -> str:
    gap_us = definition.span_us if definition.is_session else 0
    return f"unix_micros({name(f't_{definition.time}')}) + {gap_us}"


def _has_key_and_time(definition: Definition) -> str:
    columns = [f"t_{definition.time}", *(f"c_{key}" for key in definition.key)]
    return " AND ".join(f"{name(column)} IS NOT NULL" for column in columns)
