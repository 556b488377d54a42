"""Measures of the gate after `window`: windows as they would be published, where this run changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spark_jobs.definitions.definition import Definition
from spark_jobs.gates.measures.query import Measurement, Part, texts, timestamp, violation
from spark_jobs.gates.measures.touching import touching
from spark_jobs.gates.measures.versions import Versions, measure_with_versions
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
    parts = [_own_windows(scope, d, token) for d in definitions]
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
    versions = [_versions(scope, d, token, (ranges or {}).get(d.name)) for d in definitions]
    return measure_with_versions(spark, parts, versions, known)


def _own_windows(scope: Scope, definition: Definition, token: int) -> Part:
    """What is wrong with the rows of this attempt, each by itself."""
    identity = [name(column) for column in definition.identity]
    live, known_from = "era = 'live'", timestamp(scope.known_from_us)
    missing = " OR ".join(f"{column} IS NULL" for column in [*identity, "window_end"])
    right_time = (
        f"IF({live}, known_from = {known_from} AND known_to IS NULL, known_to = {known_from} AND known_from < known_to)"
    )
    rows = _row_counter(definition)
    of_row = {
        "windows_of_wrong_length": violation(f"{live} AND ({_wrong_length(definition)})"),
        "windows_without_rows": violation(f"{live} AND {rows or 1} < 1"),
        "windows_without_key": violation(missing),
        "changes_at_wrong_time": violation(f"NOT coalesce({right_time}, false)"),
    }
    if _is_balanced(scope, definition):
        of_row["rows_windowed"] = f"IF({live}, 1, -1) * {rows}"
    own = f"SELECT *, {literal(definition.name)} AS definition FROM {_history(definition)} AND token = {token}"
    bounds = () if "window_end" in definition.identity else ("window_end",)
    shows = ("definition", *definition.identity, *bounds, "known_from", "known_to", "revision", "era")
    return Part(own, of_row, shows)


def _versions(scope: Scope, definition: Definition, token: int, ranges: Sequence[Range] | None) -> Versions:
    """The windows that the attempt can have changed, told apart by key and start."""
    identity = ", ".join(map(name, definition.identity))
    rows = (
        f"SELECT {identity}, {literal(definition.name)} AS definition, era = 'live' AS is_live, known_from, revision,"
        f" token = {token} AS own FROM {_history(definition)} AND {visible_sql(scope.publication, token)}"
        f" AND (token = {token} OR {_near(definition, ranges)} OR {_falls_due(scope, definition)})"
    )
    return Versions(rows, ("definition", *definition.identity), "repeated_windows")


def _history(definition: Definition) -> str:
    """The windows that a publication can show, as SQL that goes on with AND."""
    table = definition.table()
    return f"{qualified(table.database, table.table)} WHERE era IN ('live', 'closing')"


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
