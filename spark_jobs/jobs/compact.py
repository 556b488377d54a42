"""The stage `compact`: folds the touched entities' chains into states, and keeps the trace and the chunks small."""

from __future__ import annotations

from spark_jobs.definitions.meaning import weighs_traffic
from spark_jobs.gates.measures import gold as measure_gold
from spark_jobs.jobs.checks import check_states
from spark_jobs.jobs.context import RunStage, Stage
from spark_jobs.jobs.gates import pass_gate
from spark_jobs.jobs.overflows import report_states
from spark_jobs.jobs.upkeep import keep_chunks, keep_trace
from spark_jobs.kernels.deltas.traffic import Traffic
from spark_jobs.kernels.measures.states import OVERFLOWN
from spark_jobs.restatement.chains import chain_corrections, close_chains_left_behind, writes_by_class
from spark_jobs.restatement.states import state_corrections
from spark_jobs.restatement.touched import Scope
from spark_jobs.storage.coordination.read_counts import reads_of
from spark_jobs.storage.descriptions.chain_tables import CHAINS, CHAINS_PART
from spark_jobs.storage.descriptions.tables import STATE


def compact(stage: RunStage) -> None:
    """Write the corrections of gold and judge its gate and checks; then keep the trace and the chunks small.

    The corrections are not visible before `publish`.
    """
    if restate_states(stage):
        measured = measure_gold(stage.lake, _scope(stage), token=stage.fence.token)
        pass_gate(stage, "gold", measured)
        count = measured.values[OVERFLOWN]
        report_states(stage, count, measured.examples([(OVERFLOWN,)])[OVERFLOWN] if count else [])
        check_states(stage)
    keep_trace(stage)
    keep_chunks(stage)


def restate_states(stage: Stage) -> bool:
    """Write the corrections of `gold.state` and of the chains; False if there was nothing to do."""
    if stage.scope.nothing_to_do() or stage.source.state is None:
        return False
    if stage.request.promotes is not None and stage.scope.everything:
        if not _scope(stage).everything:
            return False
        for table in (STATE, CHAINS):
            stage.request.promotes.append(stage.lake, table, stage.fence.token)
        return True
    return _restate_chains(stage) if stage.source.keeps_chains else _restate_sums(stage)


def _scope(stage: Stage) -> Scope:
    """The scope of the states, which follow from two parts of the definition alone."""
    return stage.scope.of_parts("state", CHAINS_PART)


def _restate_sums(stage: Stage) -> bool:
    files = state_corrections(stage.lake, _scope(stage), stage.fence.token)
    if files is None:
        return False
    if files:
        stage.lake.append_files(STATE, files)
    closed = close_chains_left_behind(stage.lake, _scope(stage), stage.fence.token)
    if closed:
        stage.lake.append_files(CHAINS, closed)
    return True


def _restate_chains(stage: Stage) -> bool:
    traffic = None
    if weighs_traffic(stage.source):
        # counted over all time, not since the last run: the size of one run must not decide
        reads = reads_of(stage.settings.home, stage.source.name)
        entities, deltas = writes_by_class(stage.lake, _scope(stage))
        traffic = Traffic(reads.of_all, reads.by_class, entities, deltas)
    made = chain_corrections(stage.lake, _scope(stage), stage.fence.token, traffic=traffic)
    if made is None:
        return False
    for table, files in ((STATE, made.states), (CHAINS, made.segments)):
        if files:
            stage.lake.append_files(table, files)
    stage.summary["chains"] = dict(made.counts)
    return True
