"""Restating states: the touched entities' states from their prior state and the touching deltas, or from all their
rows.

In order, an entity's new state follows from its published state and the new rows. Where a late row or a retraction
can't be absorbed by that (the kernel says which entities), those entities are folded again from all their standing
rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.checkpoints.frames import BUCKET, together
from spark_jobs.definitions.folding import fold_inputs, fold_rows
from spark_jobs.kernels.comparison import CLOSING, LIVE, without_closed
from spark_jobs.kernels.deltas.rows import RowsNeededError
from spark_jobs.kernels.grouping import whole_groups
from spark_jobs.restatement.published import published_rows
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEAST_ROWS = 1 << 18
"""Rows that are folded at once, if entities have few."""

REFOLD = "refold"
"""Mark of an entity whose state does not follow from its prior state and the new rows."""

_TIMES = ("timestamp", "known_from", "known_to")
_OUT = [c for c in STATE.columns if c.name not in ("source", "token")]
_PRIOR = ["timestamp", "at_delta", "delta_count", "names", "ints", "floats", "seen", "known_from", "revision"]


def state_corrections(lake: Lake, scope: Scope, token: int) -> DataFrame | None:
    """The rows to append to `gold.state_history`, of a source with state; None if nothing touches it."""
    source = scope.source
    prior = _prior(lake, scope)
    touching = fold_inputs(scope.touching(lake), source)
    if scope.everything:
        return _stamped(_folded(touching, prior, source, scope, onto_prior=False), source, token)
    if not scope.touching_rows(lake, ["row_id"]).any():
        return None
    # a state that no row touches stays as it is, and is not brought to the workers; the entities are looked up in a
    # table of them, which sorts neither side
    prior = prior.join(touching.select("entity").distinct().hint("shuffle_hash"), "entity", "left_semi")
    # not `persist`: Spark plans a cached query again at every write to a table that it reads;
    # not eager: looking for what must be folded again runs through all of it
    folded = _folded(touching, prior, source, scope, onto_prior=True).localCheckpoint(eager=False)
    refold = [row.entity for row in folded.where(F.col("era") == REFOLD).select("entity").collect()]
    made = folded.where(F.col("era") != REFOLD)
    if refold:
        of_refolded = F.col("entity").isin(refold)
        all_rows = fold_inputs(scope.standing(lake), source).where(of_refolded)
        made = made.unionByName(_folded(all_rows, prior.where(of_refolded), source, scope, onto_prior=False))
    return _stamped(made, source, token)


def _stamped(made: DataFrame, source: Source, token: int) -> DataFrame:
    stamped = made.select(*[F.timestamp_micros(c).alias(c) if c in _TIMES else F.col(c) for c in made.columns])
    constants = {"source": F.lit(source.name), "token": F.lit(token).cast("bigint")}
    return stamped.withColumns(constants).repartition(1).sortWithinPartitions("entity")


def _prior(lake: Lake, scope: Scope) -> DataFrame:
    """Published states of the source and what closes some of them, times as microseconds."""
    states = published_rows(lake, STATE, scope.publication).where(F.col("source") == scope.source.name)
    return states.select("entity", *[F.unix_micros(c).alias(c) if c in _TIMES else F.col(c) for c in _PRIOR], "era")


def _folded(rows: DataFrame, prior: DataFrame, source: Source, scope: Scope, *, onto_prior: bool) -> DataFrame:
    both = rows.withColumn("is_prior", F.lit(False)).unionByName(
        prior.withColumn("is_prior", F.lit(True)), allowMissingColumns=True
    )
    schema = ", ".join(f"`{c.name}` {'BIGINT' if c.name in _TIMES else c.type}" for c in _OUT)
    folder = _Folder(source, scope.known_from_us, onto_prior)
    return together(both).mapInArrow(folder, schema)


@dataclass(frozen=True)
class _Folder:
    """What runs in the Python workers: touching rows and prior states of whole entities to corrections."""

    source: Source
    known_from_us: int
    onto_prior: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for both in whole_groups(batches, [BUCKET], least_rows=LEAST_ROWS):
            is_prior = both.column("is_prior")
            rows = both.filter(pc.invert(is_prior))
            prior = without_closed(both.filter(is_prior), ["entity"])
            refold, states = self._fold(rows, prior)
            kept = pc.invert(pc.is_in(prior.column("entity"), refold))
            yield from self._corrections(states, prior.filter(kept), refold).to_batches()

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

    def _corrections(self, states: pa.Table, prior: pa.Table, refold: pa.Array) -> pa.Table:
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
        marked = {"entity": refold, "era": pa.array([REFOLD] * len(refold), pa.string())}
        return pa.concat_tables([_as(columns, schema) for columns in (inserted, closed, marked)])

    def _schema(self, prior: pa.Schema) -> pa.Schema:
        extra = {"known_to": pa.int64(), "era": pa.string()}
        return pa.schema([pa.field(c.name, extra.get(c.name) or prior.field(c.name).type) for c in _OUT])


def _as(columns: dict[str, pa.Array | pa.ChunkedArray], schema: pa.Schema) -> pa.Table:
    n = len(columns["entity"])
    return pa.table(
        {f.name: columns[f.name].cast(f.type) if f.name in columns else pa.nulls(n, f.type) for f in schema},
        schema=schema,
    )
