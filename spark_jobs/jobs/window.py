"""Window: restate exactly the windows that this run's updates touch."""

from __future__ import annotations

from dataclasses import asdict

from spark_jobs.arrow_batches import cut_by_rows
from spark_jobs.gates.measures import silver as measure_silver
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.gates import pass_gate
from spark_jobs.kernels.accounts import Account
from spark_jobs.restatement.late import late_rows
from spark_jobs.restatement.restater import has_small_rows
from spark_jobs.restatement.touched import Range
from spark_jobs.restatement.windows import corrections, touched_ranges
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


def restate_windows(stage: Stage) -> tuple[dict[str, list[Range]], dict[str, Account]] | None:
    """Write the corrections of every window definition and the late rows; per definition the touched times and what
    became of the touched rows, None if there is nothing to do, or nothing touched and nothing written."""
    stage.summary["definitions"] = [d.name for d in stage.definitions]
    scope = stage.scope
    if scope.nothing_to_do() or not (stage.definitions or scope.everything or scope.has_horizon):
        return None
    ranges = touched_ranges(stage.lake, scope, stage.definitions)
    stage.summary["touched_ranges"] = {name: len(found) for name, found in ranges.items()}
    accounts: dict[str, Account] = {}
    memory: dict[str, dict[str, int]] = {}
    for definition in stage.definitions:
        made = corrections(stage.lake, scope, definition, ranges[definition.name], stage.fence.token)
        if made is not None:
            with cut_by_rows(stage.lake.spark, has_small_rows(definition)):
                stage.lake.append(definition.table(), made.rows, None)
            accounts[definition.name] = made.account
            memory[definition.name] = made.memory
    stage.summary.update(accounts={name: asdict(found) for name, found in accounts.items()}, memory=memory)
    if any(ranges.values()) or scope.everything or scope.has_horizon:
        n_rows = sum(account.rows for account in accounts.values())
        late = late_rows(stage.lake, scope, stage.definitions, stage.fence.token, n_rows=n_rows)
        if late is not None:
            stage.lake.append(LATE, late, None)
            return ranges, accounts
    return (ranges, accounts) if accounts or any(ranges.values()) else None
