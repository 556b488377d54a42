"""The work of the stage `window`: restates exactly the windows that this run's updates touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.windows import Account
from spark_jobs.restatement.late import judged_rows, other_late_files
from spark_jobs.restatement.overflows import Overflows
from spark_jobs.restatement.pressure import Pressure, as_report
from spark_jobs.restatement.reach import touched_ranges
from spark_jobs.restatement.stream_times import with_cutoffs
from spark_jobs.restatement.touched import Range, Scope
from spark_jobs.restatement.windows import corrections
from spark_jobs.storage.descriptions.tables import LATE
from spark_jobs.storage.lakes.kept_rows import KeptRows
from spark_jobs.storage.lakes.lake import Lake


@dataclass(frozen=True, slots=True)
class RestatedWindows:
    """The outcome of restating windows. Mappings by definition have the definition's name as their key.

    Attributes:
        scope: the scope of the run, with the cutoffs of definitions that have a grace.
        ranges: the touched ranges of event time, by definition.
        accounts: the accounts of the touched rows, by definition.
        overflows: the results that do not fit into their types, by definition.
        pressures: the memory that workers used, by definition.
        is_due: True if there was something to do, and a row was touched or written.
        is_promoted: True if an environment had computed the rows.
    """

    report: dict[str, Any]
    scope: Scope
    is_due: bool = False
    is_promoted: bool = False
    ranges: Mapping[str, list[Range]] = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    overflows: Mapping[str, Overflows] = field(default_factory=dict)
    pressures: Mapping[str, Pressure] = field(default_factory=dict)


def restate_windows(
    lake: Lake, scope: Scope, definitions: Sequence[Definition], token: int, *, promotes: KeptRows | None
) -> RestatedWindows:
    """Write the corrections of every window definition, and the late rows, under `token`.

    `promotes`: the rows that an environment has computed of a changed definition; they are written in place of others.
    """
    report: dict[str, Any] = {"definitions": [d.name for d in definitions]}
    # other cutoffs make a run one of everything, too: of such a run no environment has computed the rows
    computed = promotes if scope.everything else None
    scope = with_cutoffs(lake, scope, definitions)
    if computed is not None:
        return _promote(lake, scope, definitions, token, computed, report)
    if scope.nothing_to_do() or not (definitions or scope.everything or scope.has_horizon):
        return RestatedWindows(report, scope)
    ranges = touched_ranges(lake, scope, definitions)
    report["touched_ranges"] = {name: len(ranges_of_window) for name, ranges_of_window in ranges.items()}
    corrected = corrections(lake, scope, definitions, ranges, token)
    for definition in definitions:
        if definition.name in corrected and corrected[definition.name].files:
            lake.append_files(definition.table(), corrected[definition.name].files)
    judged = judged_rows(lake, scope, definitions, token)
    if judged.files:
        lake.append_files(LATE, judged.files)
    others = None
    if any(ranges.values()) or scope.everything or scope.has_horizon:
        others = other_late_files(lake, scope, definitions, token)
    if others:
        lake.append_files(LATE, others)
    accounts = {name: of.account for name, of in corrected.items()}
    for name, account in judged.accounts.items():
        if name in accounts or account != Account():
            accounts[name] = accounts.get(name, Account()) + account
    report["accounts"] = {name: asdict(account) for name, account in accounts.items()}
    pressures = {name: Pressure.of(scope.source, of.memory) for name, of in corrected.items()}
    report["memory"] = as_report(pressures)
    is_due = bool(accounts) or others is not None or any(ranges.values())
    overflows = {name: of.overflows for name, of in corrected.items()}
    return RestatedWindows(
        report, scope, is_due, ranges=ranges, accounts=accounts, overflows=overflows, pressures=pressures
    )


def _promote(
    lake: Lake, scope: Scope, definitions: Sequence[Definition], token: int, computed: KeptRows, report: dict[str, Any]
) -> RestatedWindows:
    """Write the rows that an environment's build computed."""
    for table in [*(definition.table() for definition in definitions), LATE]:
        computed.append(lake, table, token)
    report.update(accounts=dict(computed.accounts), promoted=True)
    accounts = {name: Account(**numbers) for name, numbers in computed.accounts.items()}
    return RestatedWindows(report, scope, is_due=True, is_promoted=True, accounts=accounts)
