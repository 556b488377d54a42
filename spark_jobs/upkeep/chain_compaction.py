"""Compaction of chains without a run: of those that are due, though no row touches them.

Checkpoints are caches, so no answer changes and nothing is published. Under the source's lease, one commit takes the
old segments out of `gold.chain_history` and puts the new ones in. A kill before it leaves files that no table names,
and after it the new segments. The publication in force decides which segments are due, not the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.engine.columns import are
from spark_jobs.engine.restatement import CLOSING, LIVE, key_codes
from spark_jobs.errors import TidemarkError
from spark_jobs.jobs.compact import traffic_of
from spark_jobs.jobs.in_force import in_force
from spark_jobs.restatement.chains import due_corrections
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.leases import Lease
from spark_jobs.storage.delta.chain_files import ROW_GROUP_BYTES
from spark_jobs.storage.delta.rewriting import Change
from spark_jobs.storage.delta.written_files import Layout, WrittenFile
from spark_jobs.storage.descriptions.chain_tables import CHAINS, COMPACTION, SEGMENT
from spark_jobs.storage.lakes.lake import Lake, RunLake

_IDENTITY = (*SEGMENT[1:], "known_from")
_WEIGHED = ("deltas", "dropped", "bytes_after")


class ChainsUnbalanced(TidemarkError):
    """A compaction would have changed the number of deltas in chains. Facts: `source`, `before`, `after`, `dropped`."""

    code = "chains_unbalanced"


@dataclass(frozen=True, slots=True)
class CompactedChains:
    """The outcome of a compaction: the numbers of segments written and removed, and of deltas that newest checkpoints
    took in and that retention let go. `waits`: a run has not published what it has sealed, so nothing was done."""

    written: int = 0
    removed: int = 0
    merged: int = 0
    dropped: int = 0
    waits: bool = False


def compact_chains(lake: RunLake, source: Source, lease: Lease, home: Path) -> CompactedChains:
    """Compact the published chains of the source that are due, in one commit; no commit if none is.

    `home`: where reads of states are counted.

    Raises:
        ChainsUnbalanced: the deltas of the new segments are not those of the old ones.
    """
    frontiers, publication = in_force(lake, source, near=lease.fence.token)
    scope = Scope(source, frontiers, publication)
    if not source.keeps_chains or not publication.published_us:
        return CompactedChains()
    if not scope.nothing_to_do():
        return CompactedChains(waits=True)
    # the rows count at once, as those of the newest attempt that is published
    token = max((publication.settled, *publication.tokens))
    corrections = due_corrections(lake, scope, token, traffic=traffic_of(lake, source, scope, home))
    if corrections is None or not corrections.segments:
        return CompactedChains()
    closings = [file for file in corrections.segments if file.partition["era"] == CLOSING]
    segments = [file for file in corrections.segments if file.partition["era"] != CLOSING]
    replaced, weighed = _rows_of(lake, closings, [*_IDENTITY, *_WEIGHED]), _rows_of(lake, segments, ["era", *_WEIGHED])
    _check_balance(source, replaced, weighed)
    lake.rewrite(
        CHAINS,
        _without(replaced.select(list(_IDENTITY))),
        [*_IDENTITY, "era"],
        source=source.name,
        files=segments,
        layout=Layout(rows_a_group=_rows_a_group(weighed)),
    )
    system = lake.folder.handle(CHAINS).files()
    for file in closings:
        # no table names them: a run would have published them
        system.delete_file(file.path)
    counts = corrections.counts
    return CompactedChains(counts["segments"], replaced.num_rows, counts["merged"], counts["dropped"])


def _rows_of(lake: Lake, files: Sequence[WrittenFile], columns: Sequence[str]) -> pa.Table:
    """Columns of written files, those of partitions included."""
    to, system = lake.destination(CHAINS), lake.folder.handle(CHAINS).files()
    schema = pa.schema([to.schema.field(name) for name in columns]).remove_metadata()
    tables = [schema.empty_table()]
    for file in files:
        stored = [name for name in columns if name not in file.partition]
        rows = pq.ParquetFile(system.open_input_file(file.path)).read(stored)
        parts = {name: pa.repeat(pa.scalar(value), rows.num_rows) for name, value in file.partition.items()}
        tables.append(pa.table([(parts.get(n) if n in parts else rows[n]) for n in columns], schema=schema))
    return pa.concat_tables(tables)


def _check_balance(source: Source, replaced: pa.Table, written: pa.Table) -> None:
    live = written.filter(pa.array(are(written["era"], LIVE)))
    before, after = (pc.sum(table["deltas"]).as_py() or 0 for table in (replaced, live))
    dropped = sum(pc.sum(table["dropped"]).as_py() or 0 for table in (replaced, live))
    if before != after + dropped:
        raise ChainsUnbalanced(
            expected=f"{before} deltas in the compacted segments of {source.name}, as in those that they replace",
            found=f"{after}, and {dropped} that retention lets go",
            consequence="nothing was changed; published chains read as before",
            next_step=f"`tidemark audit {source.name}` says whether its chains are whole",
            source=source.name,
            before=before,
            after=after,
            dropped=dropped,
        )


def _rows_a_group(written: pa.Table) -> int:
    """The segments of a row group, as large as those that runs write: reads of one entity stay small."""
    counted = written.filter(pa.array(are(written["era"], COMPACTION)))
    a_segment = (pc.sum(counted["bytes_after"]).as_py() or 0) // max(written.num_rows, 1)
    return max(ROW_GROUP_BYTES // max(a_segment, 1), 1)


def _without(segments: pa.Table) -> Change:
    """The change that removes these live segments."""

    def change(rows: pa.Table) -> pa.Table | None:
        codes, gone = key_codes([rows.select(list(_IDENTITY)), segments], _IDENTITY)
        stays = ~(np.isin(codes, gone) & are(rows["era"], LIVE))
        return None if stays.all() else rows.filter(pa.array(stays))

    return change
