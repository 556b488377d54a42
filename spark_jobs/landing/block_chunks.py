"""From blocks to files of chunks: a worker takes the blocks of a bucket in row-id order, so that no sort of all rows is
needed. It has only some of the rows in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks import chunk_columns
from spark_jobs.engine.columns import Ints
from spark_jobs.exchange import are_enough, decode
from spark_jobs.landing.chunking import chunk_limits, named_chunks, row_layout
from spark_jobs.sources import Source
from spark_jobs.storage.delta.written_files import Destination, WrittenFile, as_plain

HELD_ROWS, HELD_BYTES = 1 << 19, 1 << 27
"""The most rows, and their bytes, that a worker has in memory while it makes chunks, whichever it reaches first. So
many rows of ten columns have some 100 MB. An entity's chunks of one drop are cut here at the latest."""
Payload = tuple[int, int, pa.Scalar]
"""Bucket, drop, and the encoded rows of a block."""


def payloads(batches: Iterable[pa.RecordBatch]) -> Iterator[Payload]:
    """Bucket, drop and encoded rows of each block."""
    for batch in batches:
        yield from zip(
            batch.column("bucket").to_pylist(), batch.column("seq_no").to_pylist(), batch.column("payload"), strict=True
        )


def write_chunks(batches: Iterable[pa.RecordBatch], *, chunker: BlockChunker) -> Iterator[pa.RecordBatch]:
    """Write the chunks of the blocks, and give the files as JSON in a column `files`."""
    for files in chunker(payloads(batches)):
        yield pa.record_batch({"files": pa.array([json.dumps(as_plain(files))])})


@dataclass(frozen=True)
class BlockChunker:
    """Makes files of chunks from blocks, which come by bucket, drop and row id. Each file is in the order of entities,
    drops and row ids. It is of one bucket, and of about `HELD_ROWS` rows or `HELD_BYTES` bytes at most."""

    source: Source
    landing: int
    hidden: Ints
    to: Destination

    def __call__(self, payloads: Iterator[Payload]) -> Iterator[list[WrittenFile]]:
        """Write the chunks, and give the files of some blocks at a time."""
        for _, of_bucket in groupby(payloads, key=itemgetter(0)):
            chunks: list[pa.Table] = []
            n_rows = n_bytes = 0
            for seq_no, of_drop in groupby(of_bucket, key=itemgetter(1)):
                for rows in _rows_at_once(decode(payload) for *_, payload in of_drop):
                    if n_rows and (n_rows + rows.num_rows > HELD_ROWS or n_bytes + rows.nbytes > HELD_BYTES):
                        yield self._write_sorted(chunks)
                        chunks, n_rows, n_bytes = [], 0, 0
                    chunks.append(self._chunks(seq_no, rows))
                    n_rows += rows.num_rows
                    n_bytes += rows.nbytes
            yield self._write_sorted(chunks)

    def _write_sorted(self, chunks: list[pa.Table]) -> list[WrittenFile]:
        whole = pa.concat_tables(chunks)
        keys = {"entity": whole["entity"], "seq_no": whole["seq_no"], "row_id": pc.list_element(whole["row_ids"], 0)}
        order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]).to_numpy()
        # the chunks of one drop are in this order, unless rows of an entity lack one of its timelines
        is_sorted = np.array_equal(order, np.arange(len(order)))
        return self.to.write([whole if is_sorted else whole.take(pa.array(order))])

    def _chunks(self, seq_no: int, rows: pa.Table) -> pa.Table:
        if self.hidden.size:
            rows = rows.filter(pa.array(~np.isin(rows.column("row_id").to_numpy(), self.hidden))).combine_chunks()
        order = _entity_order(rows.column("entity").combine_chunks())
        layout = row_layout(self.source)
        columns = chunk_columns(
            rows.take(pa.array(order)),
            entity=layout.entity,
            row_id=layout.row_id,
            timelines=layout.timelines,
            components=layout.components,
            config=chunk_limits(self.source),
        )
        return named_chunks(self.source, columns, seq_no=seq_no, diff=1, landing=self.landing)


def _entity_order(entities: pa.Array) -> Ints:
    """The places of rows by entity; rows of one entity stay in their order."""
    names = entities.dictionary_encode()
    places = np.empty(len(names.dictionary), np.int64)
    places[pc.sort_indices(names.dictionary).to_numpy()] = np.arange(len(places))
    # numbers of 16 bits are sorted by their digits, several times as fast
    kind = np.uint16 if len(places) <= 1 << 16 else np.int64
    return np.argsort(places.astype(kind)[names.indices.to_numpy()], kind="stable")


def _rows_at_once(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows of several tables in one, as soon as there are `HELD_ROWS` rows or `HELD_BYTES` bytes."""
    parts: list[pa.Table] = []
    for table in tables:
        parts.append(table)
        if are_enough(parts, HELD_ROWS, HELD_BYTES):
            yield pa.concat_tables(parts).combine_chunks()
            parts = []
    if parts:
        yield pa.concat_tables(parts).combine_chunks()
