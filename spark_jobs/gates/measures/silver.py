"""Measures of the gate after `window`: windows as they would be published, where this run changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spark_jobs.definitions.definition import Definition
from spark_jobs.gates.measures.query import Measurement, Part, measure, texts, timestamp, violation
from spark_jobs.gates.measures.touching import touching
from spark_jobs.kernels.accounts import Account
from spark_jobs.restatement.late import BELOW, KEPT_BELOW
from spark_jobs.restatement.touched import Range, Scope
from spark_jobs.sources.windows import (
    AdaptiveWindow,
    CalendarWindow,
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
)
from spark_jobs.storage.publication import visible_sql
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
    accounts: Mapping[str, Account],
    ranges: Mapping[str, Sequence[Range]] | None = None,
) -> Measurement:
    """What the attempt `token` would publish of these definitions, against the publication that `scope` starts from.

    Reads each history table where the attempt wrote, and the touching updates. `accounts` are what the workers made of
    the touched rows, per definition that had any. `ranges` are the touched times per definition, by which files are
    skipped; without them all windows are read.
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
        "late_rows_recorded",
        "rows_due",
        "rows_windowed",
    )
    counted = [a.accepted + a.moved for d in definitions if _is_balanced(scope, d) and (a := accounts.get(d.name))]
    known = dict.fromkeys(names, 0) | {
        "rows_accounted": sum(account.rows for account in accounts.values()),
        "rows_astray": sum(account.astray for account in accounts.values()),
        "rows_counted": sum(counted),
        "late_rows_due": sum(account.late for account in accounts.values()),
    }
    return measure(spark, parts, known)


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
        f"count_if({own} AND {live} AND ({_wrong_length(definition)})) AS wrong_length",
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
    if _is_balanced(scope, definition):
        adds["rows_windowed"] = "gained_rows"
    relation = (
        f"SELECT {', '.join(columns)} FROM {qualified(table.database, table.table)}"
        f" WHERE era IN ('live', 'closing') AND {visible_sql(scope.publication, token)}"
        f" AND ({own} OR {_near(definition, ranges)} OR {_falls_due(scope, definition)})"
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
    reach = 2 * definition.kind.span + 1
    lo, hi = min(lo for lo, _ in ranges) - reach, max(hi for _, hi in ranges) + reach
    return f"(window_end >= {timestamp(lo)} AND window_start <= {timestamp(hi)})"


def _falls_due(scope: Scope, definition: Definition) -> str:
    """Whether a window is kept no longer from this publication on."""
    expired_us, before_us = (definition.expired_us(f.reached_us) for f in (scope.frontiers, scope.publication))
    if expired_us is None or before_us is None:
        return "false"
    return f"(window_end > {timestamp(before_us)} AND window_end <= {timestamp(expired_us)})"


def _wrong_length(definition: Definition) -> str:
    """Whether a window lies where none of its definition can."""
    start, length = "unix_micros(window_start)", "unix_micros(window_end) - unix_micros(window_start)"
    match definition.window:
        case SlidingWindow(size_us=size):
            return f"{length} <> {size}"
        case SessionWindow():
            return f"{length} < 0"
        case TumblingWindow(size_us=size, offset_us=offset):
            return f"{length} <> {size} OR pmod({start} - {offset}, {size}) <> 0"
        case HoppingWindow(size_us=size, advance_us=advance, offset_us=offset):
            return f"{length} <> {size} OR pmod({start} - {offset}, {advance}) <> 0"
        case CalendarWindow():
            return f"NOT {length} BETWEEN 1 AND {definition.kind.span + 1}"
        case AdaptiveWindow(reset_us=reset):
            return f"NOT {length} BETWEEN 0 AND {reset} - pmod({start}, {reset})"


def _row_counter(definition: Definition) -> str | None:
    """SQL of the number of a window's rows, if the table has it."""
    if definition.is_adaptive:
        return "stats.delta_count"
    counts = (n for n, call in definition.window.aggregates.items() if call.function == "count" and not call.columns)
    return next(map(name, counts), None)


def _is_balanced(scope: Scope, definition: Definition) -> bool:
    """Whether rows in windows can be balanced: each is in at most one window, and windows say how many they hold.

    After a change of definition only windows that differ are written, and windows that are kept no longer take their
    rows with them: there is no balance of what was gained.
    """
    once = isinstance(definition.window, SessionWindow | TumblingWindow | CalendarWindow | AdaptiveWindow)
    kept = definition.window.keep_us is None
    return once and kept and not scope.everything and _row_counter(definition) is not None


def _rows_due(scope: Scope, definitions: Sequence[Definition]) -> Part:
    """How many of the touching updates, net, each definition must account for: those with a key and a time."""
    due = [f"IF({_has_key_and_time(d)}, diff, 0)" for d in definitions]
    shows = ("row_id", "entity", "event_time", "time", "seq_no", "diff")
    return Part(touching(scope), {"rows_due": " + ".join(due) or "0"}, shows)


def _late(scope: Scope, definitions: Sequence[Definition], token: int) -> Part:
    """What silver.late gained, net; after a change of definition, all that it would list."""
    which = visible_sql(scope.publication, token) if scope.everything else f"token = {token}"
    recorded = (
        f"SELECT * FROM {qualified(LATE.database, LATE.table)} WHERE source = {literal(scope.source.name)}"
        f" AND definition IN {texts([d.name for d in definitions])}"
        f" AND NOT coalesce(action IN {texts([BELOW, KEPT_BELOW])}, false) AND {which}"
    )
    return Part(recorded, {"late_rows_recorded": "diff"}, ("definition", "row_id", "entity", "event_time", "action"))


def _has_key_and_time(definition: Definition) -> str:
    columns = [f"t_{definition.time}", *(f"c_{key}" for key in definition.key)]
    return " AND ".join(f"{name(column)} IS NOT NULL" for column in columns)
