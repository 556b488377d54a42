"""Window: restate exactly the windows that this run's updates touch."""

from __future__ import annotations

from dataclasses import asdict

from spark_jobs.gates.measures import silver as measure_silver
from spark_jobs.jobs.checks import check_windows
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.gates import pass_gate
from spark_jobs.jobs.overflows import report_windows
from spark_jobs.kernels.accounts import Account
from spark_jobs.restatement.late import judged_files, other_late_rows
from spark_jobs.restatement.reach import touched_ranges
from spark_jobs.restatement.touched import Range
from spark_jobs.restatement.windows import corrections
from spark_jobs.storage.tables import LATE


def window(stage: Stage) -> None:
    """Write the corrections of silver, then hold them against its gate; nothing is visible before `publish`."""
    restated = restate_windows(stage)
    if restated is None:
        return
    ranges, accounts = restated
    read = None if stage.scope.everything else ranges
    measured = measure_silver(
        stage.lake, stage.scope, stage.definitions, token=stage.fence.token, ranges=read, accounts=accounts
    )
    pass_gate(stage, "silver", measured)
    check_windows(stage)


def restate_windows(stage: Stage) -> tuple[dict[str, list[Range]], dict[str, Account]] | None:
    """Write the corrections of every window definition and the late rows; per definition the touched times and what
    became of the touched rows, None if there is nothing to do, or nothing touched and nothing written."""
    stage.summary["definitions"] = [d.name for d in stage.definitions]
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
    accounts = {name: of.account for name, of in corrected.items()}
    memory = {name: of.memory for name, of in corrected.items()}
    stage.summary.update(accounts={name: asdict(found) for name, found in accounts.items()}, memory=memory)
    if any(ranges.values()) or scope.everything or scope.has_horizon:
        late = [] if not stage.definitions else judged_files(stage.lake, scope, stage.definitions, stage.fence.token)
        others = other_late_rows(stage.lake, scope, stage.definitions, stage.fence.token)
        if late:
            stage.lake.append_files(LATE, late)
        if others is not None:
            stage.lake.append(LATE, others, None)
        if late or others is not None:
            return ranges, accounts
    return (ranges, accounts) if accounts or any(ranges.values()) else None
