"""The work of the stage `compact`: folds the touched entities' chains into states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_jobs.definitions.meaning import weighs_traffic
from spark_jobs.engine.deltas import Traffic
from spark_jobs.engine.restatement import CLOSING
from spark_jobs.restatement.chains import chain_corrections, close_chains, close_chains_left_behind, writes_by_class
from spark_jobs.restatement.pressure import Pressure, as_report
from spark_jobs.restatement.states import state_corrections
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.read_counts import reads_of
from spark_jobs.storage.descriptions.chain_tables import CHAINS, CHAINS_PART
from spark_jobs.storage.descriptions.tables import STATE
from spark_jobs.storage.lakes.kept_rows import KeptRows
from spark_jobs.storage.lakes.lake import Lake


@dataclass(frozen=True, slots=True)
class RestatedStates:
    """The outcome of restating states; `is_due`: False if there was nothing to do. `pressures`: the memory that workers
    used, by the work."""

    is_due: bool
    report: dict[str, Any] = field(default_factory=dict)
    pressures: Mapping[str, Pressure] = field(default_factory=dict)


def restate_states(
    lake: Lake, source: Source, scope: Scope, token: int, *, home: Path, promotes: KeptRows | None
) -> RestatedStates:
    """Write the corrections of `gold.state` and of the chains, under `token`.

    Args:
        scope: the run's scope; `state_scope` has the part of it that the states follow from.
        home: where reads of states are counted, for sources that weigh reads against writes.
        promotes: the rows that an environment has computed of a changed definition, written in place of others.
    """
    if scope.nothing_to_do() or source.state is None:
        return RestatedStates(is_due=False)
    of_states = state_scope(scope)
    if promotes is not None and scope.everything:
        if not of_states.everything:
            return RestatedStates(is_due=False)
        promotes.append(lake, STATE, token)
        if CHAINS.qualified in promotes.files:
            promotes.append(lake, CHAINS, token, without={"era": CLOSING})
            # chains may have been compacted since the environment closed those that it replaces
            if closed := close_chains(lake, of_states, token):
                lake.append_files(CHAINS, closed)
        return RestatedStates(is_due=True)
    if source.keeps_chains:
        return _restate_chains(lake, source, of_states, token, home)
    return RestatedStates(is_due=_restate_sums(lake, of_states, token))


def state_scope(scope: Scope) -> Scope:
    """The scope of the states, which follow from two parts of the definition alone."""
    return scope.of_parts("state", CHAINS_PART)


def traffic_of(lake: Lake, source: Source, scope: Scope, home: Path) -> Traffic | None:
    """The reads and writes of the published states; None if the source's strategy of compaction weighs none."""
    if not weighs_traffic(source):
        return None
    # counted over all time, not since the last run: the size of one run must not decide
    reads = reads_of(lake, home, source.name)
    entities, deltas = writes_by_class(lake, scope)
    return Traffic(reads.of_all, reads.by_class, entities, deltas)


def _restate_sums(lake: Lake, scope: Scope, token: int) -> bool:
    """Write the corrections of a source without chains; False if no state is touched."""
    files = state_corrections(lake, scope, token)
    if files is None:
        return False
    if files:
        lake.append_files(STATE, files)
    closed = close_chains_left_behind(lake, scope, token)
    if closed:
        lake.append_files(CHAINS, closed)
    return True


def _restate_chains(lake: Lake, source: Source, scope: Scope, token: int, home: Path) -> RestatedStates:
    corrected = chain_corrections(lake, scope, token, traffic=traffic_of(lake, source, scope, home))
    if corrected is None:
        return RestatedStates(is_due=False)
    for table, files in ((STATE, corrected.states), (CHAINS, corrected.segments)):
        if files:
            lake.append_files(table, files)
    pressures = {"chains": Pressure.of(source, corrected.memory)}
    report = {"chains": dict(corrected.counts), "memory": as_report(pressures)}
    return RestatedStates(is_due=True, report=report, pressures=pressures)
