"""Restating states: the touched entities' states from their prior state and the touching deltas, or from all their
rows.

If rows come in order, an entity's new state follows from its published state and the new rows. The published state
can't always absorb a late row or a retraction. The kernel then names the entities, and these are folded again from all
their standing rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.folding import columns_folded, columns_read, fold_rows, folded_columns
from spark_jobs.distribution import cut_work
from spark_jobs.engine.deltas import RowsNeededError
from spark_jobs.engine.restatement import CLOSING, LIVE, without_closed
from spark_jobs.exchange import Block, Labelled, exchange
from spark_jobs.memory import with_room
from spark_jobs.restatement.by_entity import dealt, stamp
from spark_jobs.restatement.published import published_files
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.written_files import Destination, WrittenFile, as_plain
from spark_jobs.storage.descriptions.column_types import arrow_type_of
from spark_jobs.storage.descriptions.tables import STATE
from spark_jobs.storage.lakes.lake import Lake

ROWS_A_TASK = 1 << 19
"""The approximate number of rows and states that a task folds."""

ROWS, PRIOR = "rows", "prior"
"""Labels of blocks."""
_TIMES = ("timestamp", "known_from", "known_to")
_OUT = [c for c in STATE.columns if c.name not in ("source", "token")]
_PRIOR = ["timestamp", "at_delta", "delta_count", "names", "ints", "floats", "seen", "known_from", "revision"]


def state_corrections(lake: Lake, scope: Scope, token: int) -> list[WrittenFile] | None:
    """The files to append to `gold.state_history` for a source with state; None if no row touches it."""
    source = scope.source
    columns = columns_read(source)
    touching = scope.touching_rows(lake, columns)
    if not scope.everything and not touching.any():
        return None
    folder = StateFolder(
        source, scope.known_from_us, onto_prior=not scope.everything, to=lake.destination(STATE), token=token
    )
    files, refold = _fold(lake, folder, touching, prior_states(lake, scope))
    if refold:
        of_refolded = pc.field("entity").isin(pa.array(refold, pa.string()))
        all_rows, prior = scope.due_rows(lake, columns, of_refolded), prior_states(lake, scope, of_refolded)
        more, _ = _fold(lake, replace(folder, onto_prior=False), all_rows, prior)
        files += more
    return files


def prior_states(lake: Lake, scope: Scope, where: pc.Expression | None = None) -> StoredRows:
    """The published states of the source that meet `where`, and the closing rows that end some of them."""
    columns = ["entity", *_PRIOR, "era"]
    return published_files(lake, STATE, scope.publication, columns, where, {"source": [scope.source.name]})


def _fold(lake: Lake, folder: StateFolder, rows: StoredRows, prior: StoredRows) -> tuple[list[WrittenFile], list[str]]:
    """The files of corrections, and the entities that must be folded from all their rows."""
    cut = cut_work(lake.spark, rows.n_rows + prior.n_rows, rows.n_bytes + prior.n_bytes, ROWS_A_TASK)
    read = {ROWS: rows, PRIOR: prior}
    pieces = [(label, part) for label, of_label in read.items() for part in of_label.split(cut.rows_a_piece)]
    deal = partial(_blocks, n_tasks=cut.tasks)
    exchanged = exchange(lake.spark, pieces, deal, cut.tasks, folder, here=cut.here)
    answers = [json.loads(answer) for answer in exchanged]
    files = [WrittenFile(**file) for answer in answers for file in answer["files"]]
    return files, [entity for answer in answers for entity in answer["refold"]]


def _blocks(piece: tuple[str, StoredRows], *, n_tasks: int) -> Iterator[Block]:
    """The rows of a piece, each in the task of its entity."""
    label, stored = piece
    for table in stored.tables():
        yield from dealt(label, table, n_tasks)


@dataclass(frozen=True)
class StateFolder:
    """The work of a task: from touching rows and prior states of whole entities to written files of corrections.

    `onto_prior`: rows are folded onto the prior states; if false, the rows are all rows of their entities, and all
    prior states are closed.
    """

    source: Source
    known_from_us: int
    onto_prior: bool
    to: Destination
    token: int

    def __call__(self, _: int, blocks: Labelled) -> bytes:
        """The written files of corrections, and the entities to fold from all their rows, as JSON."""
        parts: dict[str, list[pa.Table]] = {ROWS: [], PRIOR: []}
        for label, table in with_room(blocks, itemgetter(1)):
            parts[label].append(table)
        rows = self._inputs(parts[ROWS])
        prior = without_closed(self._states(parts[PRIOR]), ["entity"])
        if self.onto_prior:
            # a state that no row touches stays as it is
            prior = prior.filter(pc.is_in(prior["entity"], rows["entity"].combine_chunks()))
        refold, states = self._fold(rows, prior)
        kept = pc.invert(pc.is_in(prior["entity"], refold))
        corrected = self._corrections(states, prior.filter(kept)).sort_by(
            [("entity", "ascending"), ("era", "ascending")]
        )
        files = self.to.write([stamp(corrected, self.source, self.token)])
        return json.dumps({"files": as_plain(files), "refold": refold.to_pylist()}).encode()

    def _inputs(self, parts: Sequence[pa.Table]) -> pa.Table:
        """The rows with the columns that `fold_rows` takes."""
        if parts:
            return folded_columns(pa.concat_tables(parts), self.source)
        plain = {"entity": pa.string(), "row_id": pa.int64(), "diff": pa.int64(), "event_time": pa.int64()}
        typed = {f"v_{c}": arrow_type_of(self.source.columns[c]) for c in columns_folded(self.source)}
        return pa.schema(list((plain | typed).items())).empty_table()

    def _states(self, parts: Sequence[pa.Table]) -> pa.Table:
        """The prior states with times in microseconds."""
        names = ["entity", *_PRIOR, "era"]
        if not parts:
            schema = self.to.schema
            parts = [pa.schema([schema.field(name) for name in names]).empty_table()]
        prior = pa.concat_tables(parts).select(names)
        columns = [prior[name].cast(pa.int64()) if name in _TIMES else prior[name] for name in names]
        return pa.table(columns, names=names)

    def _fold(self, rows: pa.Table, prior: pa.Table) -> tuple[pa.Array, pa.Table]:
        """The entities that need all their rows, and the states of the others."""
        none = pa.array([], pa.string())
        if not self.onto_prior:
            return none, fold_rows(rows, self.source)
        onto = self._as_states(prior)
        try:
            return none, fold_rows(rows, self.source, onto)
        except RowsNeededError as error:
            refold = pa.array(error.facts["entities"], pa.string())
            others, onto_others = (t.filter(pc.invert(pc.is_in(t.column("entity"), refold))) for t in (rows, onto))
            return refold, fold_rows(others, self.source, onto_others)

    def _as_states(self, prior: pa.Table) -> pa.Table:
        n = prior.num_rows
        vector = prior.column("ints" if self._is_int else "floats")
        columns = {name: prior.column(name) for name in ("entity", "timestamp", "at_delta", "delta_count", "names")}
        return pa.table(
            {**columns, "vector": vector, "seen": prior.column("seen"), "deleted": pa.array([False] * n, pa.bool_())}
        )

    @property
    def _is_int(self) -> bool:
        return self.source.state is not None and self.source.state.datatype == "int64"

    def _corrections(self, states: pa.Table, prior: pa.Table) -> pa.Table:
        schema = self._schema(prior.schema)
        where = pc.index_in(states.column("entity"), prior.column("entity").combine_chunks())
        revision = pc.fill_null(pc.add(prior.column("revision").combine_chunks().take(where), 1), 0).cast(pa.int32())
        n = states.num_rows
        vector, none = states.column("vector"), pa.nulls(n)
        inserted = {
            **{
                name: states.column(name)
                for name in ("entity", "timestamp", "at_delta", "delta_count", "names", "seen")
            },
            "ints": vector if self._is_int else none,
            "floats": none if self._is_int else vector,
            "known_from": pa.array([self.known_from_us] * n, pa.int64()),
            "known_to": none,
            "revision": revision,
            "era": pa.array([LIVE] * n, pa.string()),
        }
        m = prior.num_rows
        closed = {
            **{name: prior.column(name) for name in ("entity", *_PRIOR)},
            "known_to": pa.array([self.known_from_us] * m, pa.int64()),
            "era": pa.array([CLOSING] * m, pa.string()),
        }
        return pa.concat_tables([_as(columns, schema) for columns in (inserted, closed)])

    def _schema(self, prior: pa.Schema) -> pa.Schema:
        extra = {"known_to": pa.int64(), "era": pa.string()}
        return pa.schema([pa.field(c.name, extra.get(c.name) or prior.field(c.name).type) for c in _OUT])


def _as(columns: dict[str, pa.Array | pa.ChunkedArray], schema: pa.Schema) -> pa.Table:
    n = len(columns["entity"])
    return pa.table(
        {f.name: columns[f.name].cast(f.type) if f.name in columns else pa.nulls(n, f.type) for f in schema},
        schema=schema,
    )
