"""The stage `window`: restates exactly the windows that this run's updates touch."""

from __future__ import annotations

from dataclasses import asdict

from spark_jobs.definitions.definition import Definition
from spark_jobs.gates.measures import silver as measure_silver
from spark_jobs.jobs.checks import check_windows
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.gates import keep_verdicts, pass_gate
from spark_jobs.jobs.overflows import KIND, report_windows
from spark_jobs.kernels.accounts import Account
from spark_jobs.restatement.late import judged_rows, other_late_files
from spark_jobs.restatement.reach import touched_ranges
from spark_jobs.restatement.touched import Range
from spark_jobs.restatement.windows import corrections
from spark_jobs.storage.descriptions.tables import LATE
from spark_jobs.storage.lakes.kept_rows import KeptRows


def window(stage: Stage) -> None:
    """Write the corrections of silver, then judge its gate and checks; nothing is visible before `publish`."""
    restated = restate_windows(stage)
    if restated is None:
        return
    ranges, accounts = restated
    # a changed definition may have published windows anywhere
    read = {d.name: ranges[d.name] for d in stage.definitions if d.name in ranges and not _is_changed(stage, d)}
    measured = measure_silver(
        stage.lake, stage.scope, stage.definitions, token=stage.fence.token, ranges=read, accounts=accounts
    )
    pass_gate(stage, "silver", measured)
    check_windows(stage)


def restate_windows(stage: Stage) -> tuple[dict[str, list[Range]], dict[str, Account]] | None:
    """Write the corrections of every window definition, and the late rows.

    Returns the touched ranges of time and an account of the touched rows, each by definition. None if there is nothing
    to do, or no row touched and none written.
    """
    stage.summary["definitions"] = [d.name for d in stage.definitions]
    if stage.request.promotes is not None and stage.scope.everything:
        return {}, _promote(stage, stage.request.promotes)
    scope = stage.scope
    if scope.nothing_to_do() or not (stage.definitions or scope.everything or scope.has_horizon):
        return None
    ranges = touched_ranges(stage.lake, scope, stage.definitions)
    stage.summary["touched_ranges"] = {name: len(found) for name, found in ranges.items()}
    corrected = corrections(stage.lake, scope, stage.definitions, ranges, stage.fence.token)
    for definition in stage.definitions:
        if definition.name in corrected and corrected[definition.name].files:
            stage.lake.append_files(definition.table(), corrected[definition.name].files)
    report_windows(stage, {name: of.overflows for name, of in corrected.items()})
    judged = judged_rows(stage.lake, scope, stage.definitions, stage.fence.token)
    if judged.files:
        stage.lake.append_files(LATE, judged.files)
    others = None
    if any(ranges.values()) or scope.everything or scope.has_horizon:
        others = other_late_files(stage.lake, scope, stage.definitions, stage.fence.token)
    if others:
        stage.lake.append_files(LATE, others)
    accounts = {name: of.account for name, of in corrected.items()}
    for name, account in judged.accounts.items():
        if name in accounts or account != Account():
            accounts[name] = accounts.get(name, Account()) + account
    memory = {name: of.memory for name, of in corrected.items()}
    stage.summary.update(accounts={name: asdict(account) for name, account in accounts.items()}, memory=memory)
    return (ranges, accounts) if accounts or others is not None or any(ranges.values()) else None


def _is_changed(stage: Stage, definition: Definition) -> bool:
    return stage.scope.of_parts(definition.part).everything


def _promote(stage: Stage, kept: KeptRows) -> dict[str, Account]:
    """Write the rows that an environment's build computed; returns the accounts of its rows, by definition."""
    for table in [*(definition.table() for definition in stage.definitions), LATE]:
        kept.append(stage.lake, table, stage.fence.token)
    keep_verdicts(stage, "silver", map(dict, kept.verdicts), (KIND,))
    stage.summary.update(accounts=dict(kept.accounts), promoted=True)
    return {name: Account(**numbers) for name, numbers in kept.accounts.items()}
