"""The history of some entities' states and chains worked out anew, publication by publication, from the rows that the
trace has now.

It is `replay` for states: the result is the history that the runs would have written if other rows had never existed.
The work is done in memory, by the same tasks as in a run. A chain may be cut at other places than by the runs, since
they also cut chains by age; every state that it gives is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.folding import columns_read
from spark_jobs.definitions.meaning import chain_columns, chain_inputs, meaning_of, policy_of
from spark_jobs.engine.deltas import UNMOVED, Frontiers
from spark_jobs.restatement.chain_stretches import ROW, SEGMENT_PART, STATE_PART
from spark_jobs.restatement.chain_task import ChainTask
from spark_jobs.restatement.chain_worker import ChainWorker, oldest_age
from spark_jobs.restatement.chains import chain_schema
from spark_jobs.restatement.replayed import Moment, PublicationStep, taken_in
from spark_jobs.restatement.states import PRIOR, ROWS, StateFolder
from spark_jobs.sources import Source
from spark_jobs.storage.delta.written_files import Destination, WrittenFile
from spark_jobs.storage.descriptions.chain_tables import CHAINS, COMPACTION
from spark_jobs.storage.descriptions.tables import STATE
from spark_jobs.storage.lakes.lake import Lake


@dataclass(frozen=True)
class RowsInMemory(Destination):
    """A destination that keeps the rows in `tables` and writes no file."""

    tables: list[pa.Table] = field(default_factory=list)

    @classmethod
    def like(cls, to: Destination) -> RowsInMemory:
        """An empty one with the columns of another destination."""
        # without partitions, since the rows keep all their columns
        return cls(to.handle, to.schema.remove_metadata(), (), to.bounded, to.layout)

    def write(self, tables: Iterable[pa.Table]) -> list[WrittenFile]:
        """Keep the rows of the tables; a column that a table lacks is null."""
        self.tables.extend(self.fit(table) for table in tables if table.num_rows)
        return []

    def whole(self) -> pa.Table:
        """All rows that were written."""
        return pa.concat_tables([self.schema.empty_table(), *self.tables])


@dataclass(frozen=True)
class ReplayedStates:
    """The rows of `gold.state_history` and `gold.chain_history` that runs would have written; None for no rows."""

    states: pa.Table | None = None
    segments: pa.Table | None = None


def columns_replayed(source: Source) -> list[str]:
    """The columns of updates that `replayed_states` reads."""
    columns = chain_columns(source) if source.keeps_chains else columns_read(source)
    return [*dict.fromkeys([*columns, "time"])]


def replayed_states(
    lake: Lake, source: Source, updates: pa.Table, published: Sequence[Moment], retention: Frontiers, token: int
) -> ReplayedStates:
    """The history of the states, and chains if the source keeps them, of all entities that the updates are of.

    Args:
        lake: gives the columns of tables; it is not changed.
        updates: all updates of these entities, with `columns_replayed`.
        published: the publications, oldest first.
        retention: since and horizon as they are at the last publication.
        token: the token that the rows get.
    """
    states, segments = RowsInMemory.like(lake.destination(STATE)), None
    if source.keeps_chains:
        segments = RowsInMemory.like(lake.destination(CHAINS))
    for step in taken_in(updates, published):
        if not step.touching.any():
            continue
        if segments is None:
            _restate_sums(source, updates, step, states, token)
        else:
            frontiers = retention if step.now == published[-1] else UNMOVED
            _restate_chains(source, updates, step, frontiers, states, segments, token)
    if segments is None:
        return ReplayedStates(states.whole())
    written = segments.whole()
    return ReplayedStates(states.whole(), written.filter(pc.not_equal(written["era"], COMPACTION)))


def _restate_sums(source: Source, updates: pa.Table, step: PublicationStep, states: RowsInMemory, token: int) -> None:
    touched = pc.unique(updates["entity"].filter(pa.array(step.touching)))
    inputs = {ROWS: updates.filter(pa.array(step.due)), PRIOR: states.whole()}
    folder = StateFolder(source, step.now.known_from_us, onto_prior=False, to=states, token=token)
    folder(0, ((label, table.filter(pc.is_in(table["entity"], touched))) for label, table in inputs.items()))


def _restate_chains(
    source: Source,
    updates: pa.Table,
    step: PublicationStep,
    frontiers: Frontiers,
    states: RowsInMemory,
    segments: RowsInMemory,
    token: int,
) -> None:
    now, known_us = step.now, step.before.published_us
    policy = policy_of(source)
    worker = ChainWorker(
        meaning_of(source), policy, frontiers, now.known_from_us, now.reached_us, False, chain_schema(),
        oldest=oldest_age(policy, now.reached_us),
    )  # fmt: skip
    schema = chain_inputs(updates.slice(0, 0), source, known_us).schema
    task = ChainTask(worker, source, known_us, schema, states, segments, token)
    rows = updates.filter(pa.array(step.touching))
    task(0, iter([(ROW, rows), (STATE_PART, states.whole()), (SEGMENT_PART, segments.whole())]))
