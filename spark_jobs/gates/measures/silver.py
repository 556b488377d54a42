"""The measures of the gate after `window`: the windows that this run changes, as they would be published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.measures import diffs, faulty_things, judge_versions, judge_windows
from spark_jobs.engine.restatement import CLOSING, LIVE
from spark_jobs.engine.windows import Account
from spark_jobs.gates.measures.parts import AnyPart, EachRow, Ground, Measurement, OfShare, Together, measure
from spark_jobs.restatement.late import BELOW, KEPT_BELOW
from spark_jobs.restatement.touched import Range, Scope, instant
from spark_jobs.sources.windows import AdaptiveWindow, CalendarWindow, SessionWindow, TumblingWindow
from spark_jobs.storage.coordination.publication import visible_rows
from spark_jobs.storage.descriptions.tables import LATE
from spark_jobs.storage.lakes.lake import Lake

SHOWABLE = {"era": [LIVE, CLOSING]}
"""The partitions of a history table that a publication can show."""

_MEASURES = (
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


def silver(
    lake: Lake,
    scope: Scope,
    definitions: Sequence[Definition],
    *,
    token: int,
    accounts: Mapping[str, Account],
    ranges: Mapping[str, Sequence[Range]] | None = None,
) -> Measurement:
    """The measures of the windows that the attempt `token` would publish, compared with the publication of `scope`.

    Reads each definition's history table where the attempt may have changed it, and the touching updates. `accounts`
    has, for each definition with touched rows, the number of rows by outcome. `ranges` are the touched times per
    definition, by which files are skipped; without them, all windows of the definition are read.
    """
    parts: list[AnyPart] = []
    balanced: list[str] = []
    for of_some, some in scope.by_window(definitions):
        parts += [_rows_due(lake, of_some, some), _late(lake, of_some, some, token)]
        for definition in some:
            parts.append(_own_windows(lake, of_some, definition, token))
            parts.append(_versions(lake, of_some, definition, token, (ranges or {}).get(definition.name)))
        balanced += [d.name for d in some if _is_balanced(of_some, d) and d.name in accounts]
    by_definition = {
        "rows_counted": {name: accounts[name].accepted + accounts[name].moved for name in balanced},
        "late_rows_due": {name: account.late for name, account in accounts.items()},
    }
    given_values = dict.fromkeys(_MEASURES, 0) | {
        "rows_accounted": sum(account.rows for account in accounts.values()),
        "rows_astray": sum(account.astray for account in accounts.values()),
        **{measure: sum(of.values()) for measure, of in by_definition.items()},
    }
    return measure(lake.spark, parts, given_values, Ground("definition", "definition", given_sums=by_definition))


def _own_windows(lake: Lake, scope: Scope, definition: Definition, token: int) -> EachRow:
    """The part that checks each window that the attempt wrote."""
    counter = _row_counter(definition)
    shows = (*definition.identity, "window_end", "known_from", "known_to", "revision", "era")
    columns = [*shows, "window_start", *counter[:1]]
    rows = lake.stored(definition.table(), columns, pc.field("token") == token, SHOWABLE)
    judge = partial(
        judge_windows,
        kind=definition.kind,
        identity=definition.identity,
        counter=counter,
        known_from_us=scope.known_from_us,
        balanced=_is_balanced(scope, definition),
    )
    return EachRow(rows, judge, shows, {"definition": definition.name})


def _versions(lake: Lake, scope: Scope, definition: Definition, token: int, ranges: Sequence[Range] | None) -> Together:
    """The part that checks the versions of the windows that the attempt can have changed, by key and start."""
    identity = tuple(definition.identity)
    visible = visible_rows(scope.publication, token)
    beside = _beside(scope, definition, ranges)
    where = visible if beside is None else visible & ((pc.field("token") == token) | beside)
    rows = lake.stored(definition.table(), [*identity, "era", "known_from", "revision", "token"], where, SHOWABLE)
    gather = partial(faulty_things, identity=identity, token=token)
    judge = partial(judge_versions, repeated="repeated_windows")
    return Together([OfShare(rows, identity[-1])], gather, judge, {"definition": definition.name})


def _beside(scope: Scope, definition: Definition, ranges: Sequence[Range] | None) -> pc.Expression | None:
    """The condition on windows that a row of the touched ranges can affect them, or that they expire with this
    publication.

    None if the ranges are not given, since then any window can be affected."""
    if ranges is None:
        return None
    near = pc.scalar(False)
    end = pc.field("window_end")
    if ranges:
        # twice the span: a published window that a changed session was part of can reach one span further
        reach = 2 * definition.kind.span + 1
        lo, hi = min(lo for lo, _ in ranges) - reach, max(hi for _, hi in ranges) + reach
        near = (end >= instant(lo)) & (pc.field("window_start") <= instant(hi))
    expired_us, before_us = (definition.expired_us(f.reached_us) for f in (scope.frontiers, scope.publication))
    if expired_us is None or before_us is None:
        return near
    return near | ((end > instant(before_us)) & (end <= instant(expired_us)))


def _row_counter(definition: Definition) -> tuple[str, ...]:
    """The path of the column (and its field) with the number of a window's rows; empty if the table has none."""
    if definition.is_adaptive:
        return ("stats", "delta_count")
    counts = (n for n, call in definition.window.aggregates.items() if call.function == "count" and not call.columns)
    return tuple(counts)[:1]


def _is_balanced(scope: Scope, definition: Definition) -> bool:
    """True if rows in windows can be balanced: each row is in at most one window, and windows count their rows.

    There is no balance after a change of the definition, when only windows that differ are written. There is none
    either if windows expire, since their rows go with them.
    """
    once = isinstance(definition.window, SessionWindow | TumblingWindow | CalendarWindow | AdaptiveWindow)
    kept = definition.window.keep_us is None
    return once and kept and not scope.everything and bool(_row_counter(definition))


def _rows_due(lake: Lake, scope: Scope, definitions: Sequence[Definition]) -> EachRow:
    """The part that counts the touching updates, net, once for each definition: each must account for all of them."""
    shows = ("row_id", "entity", "event_time", "time", "seq_no", "diff")
    due = partial(diffs, measure="rows_due", times=len(definitions))
    return EachRow(scope.touching_rows(lake, ["diff"]), due, shows)


def _late(lake: Lake, scope: Scope, definitions: Sequence[Definition], token: int) -> EachRow:
    """The part that counts the rows that silver.late gained, net, except those below a horizon. After a change of
    definition it counts all rows that silver.late would list."""
    which = visible_rows(scope.publication, token) if scope.everything else pc.field("token") == token
    below = pa.array([BELOW, KEPT_BELOW], pa.string())
    judged = pc.field("definition").isin(pa.array([d.name for d in definitions], pa.string()))
    where = which & judged & ~pc.field("action").isin(below)
    rows = lake.stored(LATE, ["diff"], where, {"source": [scope.source.name]})
    shows = ("definition", "row_id", "entity", "event_time", "action")
    return EachRow(rows, partial(diffs, measure="late_rows_recorded"), shows)
