"""Blocks of landed rows: the rows of one file that fall into one bucket of entities. A block is encoded once in the
worker that reads the rows, and decoded in the worker that makes chunks.

Spark moves, caches and sorts whole blocks; it never takes a row apart. A block has its rows in row-id order, and blocks
of a bucket come in row-id order, so that no sort of rows is needed either. A worker collects up to `HELD_ROWS` of them,
or `HELD_BYTES`, brings each entity's together, and cuts chunks. This bounds a worker's memory, whatever the drop's size
and however wide its rows are.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.distribution import is_for_here, tasks_for_cores
from spark_jobs.engine.columns import Ints
from spark_jobs.engine.hashes import BloomFilter, Hashes, hashes_of, ranges_of
from spark_jobs.engine.records import DRIFT_RULES, Erasures, RecordSpec
from spark_jobs.exchange import BLOCK_BYTES, BLOCK_ROWS, are_enough, decode
from spark_jobs.landing.block_chunks import BlockChunker, Payload, write_chunks
from spark_jobs.landing.drift import Drift
from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.pending import row_schema
from spark_jobs.landing.reader import reading_tasks, schema_ddl
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.worker import first_rows, output_schema, read_file
from spark_jobs.plugins.code import Format
from spark_jobs.sources import Source
from spark_jobs.storage.delta.file_summaries import UNPACKED
from spark_jobs.storage.delta.written_files import Destination, WrittenFile
from spark_jobs.threads import in_threads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HASHED_BYTES = 1 << 30
"""Uncompressed bytes of files for one range of hashes. A landing has the hashes of one range in memory at a time, 8
bytes for each row."""
BUCKET_BYTES = 64 << 20
"""Uncompressed bytes of files for one bucket, which makes one task and one file of chunks."""
MOST_BUCKETS = 256
SAMPLED_FILES = 4
"""The number of files whose first rows decide how entities are distributed to buckets."""

MEMORY_TIMES = 16
"""The most memory that reading files and making chunks takes, as a multiple of the uncompressed bytes of the files."""
LEAST_BUCKET_BYTES = 16 << 20
"""The fewest bytes for which a bucket more is worth a file of chunks more, where cores would be idle otherwise."""
_UNPACKED = {".gz": 8, ".zst": 8, ".zstd": 8, ".parquet": UNPACKED}
"""The approximate uncompressed bytes of a byte of a file, by the end of the file's name."""


FILE, REJECT, BLOCK = "file", "reject", "block"
COUNTS = ("rows", "rejects", "whole", "lines", "entities")
"""The counts of each file."""
RECORDS = "coalesce(records, 1)"
"""SQL: the number of rejected records that a row represents."""
_DRIFT_RULES = sorted(DRIFT_RULES)
IDENTITY = "row_id BIGINT, delta_id STRING"
_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("seq_no", pa.int64()),
        ("file", pa.string()),
        ("first_row_id", pa.int64()),
        # of a block
        ("bucket", pa.int32()),
        ("least_row_id", pa.int64()),
        ("payload", pa.binary()),
        # of a block whose source declares delta_ids: their hashes, ascending, by ranges of hashes
        ("hashes", pa.list_(pa.binary())),
        # of a rejected record, or a range of them
        ("line", pa.int64()),
        ("rule", pa.string()),
        ("reason", pa.string()),
        ("raw", pa.string()),
        ("last_line", pa.int64()),
        ("records", pa.int64()),
        # of a file
        ("rows", pa.int64()),
        ("rejects", pa.int64()),
        ("whole", pa.int64()),
        ("lines", pa.int64()),
        ("entities", pa.int64()),
    ]
)
_REJECTED = ("line", "rule", "reason", "raw", "last_line", "records")
_NOT_IN_BLOCKS = ("seq_no", "file", "arrival", *_REJECTED)
_IPC = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class Blocks:
    """The rows and rejects of files, read once and kept until `forget`.

    Three kinds of rows are kept, see `_SCHEMA`: a block of good rows, a rejected record, and the counts of a file.
    These are the numbers of its rows and rejects, how often it was rejected whole, the line of its last record, and
    about how many entities it has. `buckets` is the number of ranges of entities, `hash_ranges` that of hashes. This
    process keeps the rows of small files (`here`), Spark those of larger ones (`cached`).
    """

    spark: SparkSession | None
    buckets: int
    hash_ranges: int
    here: pa.Table | None = None
    cached: DataFrame | None = None

    @classmethod
    def of(
        cls, spark: SparkSession | None, source: Source, files: list[LandingFile], erased: Erasures | None = None
    ) -> Blocks:
        """Read these files; nothing is kept of records with `erased` values. Without a session this process reads
        all of them."""
        spec, form = record_spec(source, erased), source.landing.form
        n_bytes = sum(unpacked_bytes(file) for file in files)
        hash_ranges = 1 + n_bytes // HASHED_BYTES
        if is_for_here(spark, n_bytes, MEMORY_TIMES):
            bounds = _bounds(files, form, spec, 1 + n_bytes // BUCKET_BYTES)
            of_files = in_threads(lambda file: list(_read_one(file, form, spec, bounds, hash_ranges)), files)
            parts = [part for of_file in of_files for part in of_file]
            return cls(spark, len(bounds) + 1, hash_ranges, here=pa.Table.from_batches(parts, _SCHEMA))
        buckets = max(1 + n_bytes // BUCKET_BYTES, tasks_for_cores(spark, n_bytes, LEAST_BUCKET_BYTES))
        bounds = _bounds(files, form, spec, buckets)
        read = partial(_read, files=tuple(files), form=form, spec=spec, bounds=bounds, hash_ranges=hash_ranges)
        assert spark is not None, "without a session this process reads all of them"
        tasks = reading_tasks(spark, len(files))
        blocks = spark.range(0, len(files), 1, tasks).mapInArrow(read, schema_ddl(_SCHEMA)).persist()
        return cls(spark, len(bounds) + 1, hash_ranges, cached=blocks)

    def forget(self) -> None:
        """Release the rows from Spark's cache, if they are there."""
        if self.cached is not None:
            self.cached.unpersist()

    @property
    def read(self) -> DataFrame:
        """The kept rows as a Spark frame."""
        if self.cached is not None:
            return self.cached
        assert self.spark is not None, "a frame is asked of a lake with frames alone"
        return self.spark.createDataFrame(self.here)

    def counts(self) -> tuple[dict[str, dict[str, int]], Hashes]:
        """The `COUNTS` of each file by its path, and the hashes of delta_ids in the first range: one job at most."""
        if self.here is not None:
            rows = self.here.filter(pc.equal(self.here["kind"], FILE))
            hashes = self.hashes(0)
        else:
            good = self.read.where(F.col("kind") != REJECT)
            rows = good.select("kind", "file", *COUNTS, F.col("hashes")[0].alias("hashes")).toArrow()
            hashes, rows = _gather_hashes(rows["hashes"]), rows.filter(pc.equal(rows["kind"], FILE))
        files = rows.select(["file", *COUNTS]).to_pylist()
        return {file.pop("file"): file for file in files}, hashes

    def hashes(self, number: int) -> Hashes:
        """The hashes of delta_ids in a range, ascending; `counts` gives those of the first range, too."""
        if self.here is not None:
            return _gather_hashes(pc.list_element(self.here["hashes"].drop_null(), number))
        return _gather_hashes(self._blocks.select(F.col("hashes")[number].alias("hashes")).toArrow()["hashes"])

    @property
    def rejects(self) -> DataFrame:
        """The rejected records as a Spark frame."""
        return self.read.where(F.col("kind") == REJECT)

    @property
    def rejects_here(self) -> pa.Table:
        """The rejected records, which this process keeps."""
        assert self.here is not None, "the caller looks who keeps them"
        return self.here.filter(pc.equal(self.here["kind"], REJECT))

    def drifts(self) -> list[Drift]:
        """The rejects due to other columns than the declared ones, by rule and reason."""
        if self.here is None:
            return drifts(self.rejects)
        rows = self.rejects_here
        rows = rows.filter(pc.is_in(rows["rule"], pa.array(_DRIFT_RULES)))
        records = pc.fill_null(rows["records"], 1)
        rows = pa.table({**{name: rows[name] for name in ("rule", "reason", "file")}, "records": records})
        grouped = rows.group_by(["rule", "reason"]).aggregate([("records", "sum"), ("file", "min")])
        return [Drift(*row.values()) for row in grouped.to_pylist()]

    @property
    def _blocks(self) -> DataFrame:
        return self.read.where(F.col("kind") == BLOCK)

    @property
    def _blocks_here(self) -> Iterator[Payload]:
        """The blocks that this process keeps, in the order of buckets, drops and row ids."""
        assert self.here is not None, "the caller looks who keeps them"
        places = np.flatnonzero(pc.equal(self.here["kind"], BLOCK).to_numpy())
        names = ["bucket", "seq_no", "least_row_id"]
        keys = self.here.select(names).take(pa.array(places))
        # the order of the keys alone: the rows are most of the table, and are not copied
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names])
        for key, place in zip(keys.take(order).to_pylist(), places[order.to_numpy()].tolist(), strict=True):
            yield key["bucket"], key["seq_no"], self.here["payload"][place]

    def rows(self, source: Source) -> DataFrame:
        """The good rows, with the columns of `reader.read_files` except those of rejects."""
        left_out = {*_NOT_IN_BLOCKS} - {"seq_no", "file", "line"}
        schema = pa.schema([f for f in output_schema(record_spec(source)) if f.name not in left_out])
        return self._blocks.mapInArrow(partial(_rows, schema=schema), schema_ddl(schema))

    def identities(self, wanted: BloomFilter) -> DataFrame:
        """`row_id` and `delta_id` of the good rows whose delta_ids pass the filter; the source must declare
        delta_ids."""
        return self._blocks.select("payload").mapInArrow(partial(_identities, wanted=wanted), IDENTITY)

    def rows_here(self, source: Source, row_ids: Ints | None = None) -> pa.Table:
        """Of the good rows that this process keeps, those with these ids (None: all), with the columns of
        `tables.row_columns`."""
        schema = row_schema(source)
        parts = [schema.empty_table()]
        for _, seq_no, payload in self._blocks_here:
            rows = decode(payload)
            rows = rows if row_ids is None else rows.filter(pc.is_in(rows["row_id"], value_set=pa.array(row_ids)))
            rows = rows.append_column("seq_no", pa.repeat(pa.scalar(seq_no, pa.int64()), rows.num_rows))
            parts.append(rows.select(schema.names).cast(schema))
        return pa.concat_tables(parts)

    def identities_here(self, wanted: BloomFilter) -> pa.Table:
        """`identities` of the rows that this process keeps."""
        none = pa.schema([("row_id", pa.int64()), ("delta_id", pa.string())]).empty_table()
        return pa.concat_tables([none, *(_select_passing(payload, wanted) for *_, payload in self._blocks_here)])

    def write_chunks(self, source: Source, landing: int, hidden: Ints, to: Destination) -> list[WrittenFile]:
        """Write the source's chunks, of all good rows except those with the ids `hidden`; returns the files."""
        chunker = BlockChunker(source, landing, hidden, to)
        if self.cached is None:
            by_bucket = [list(blocks) for _, blocks in groupby(self._blocks_here, key=itemgetter(0))]
            written = in_threads(lambda blocks: list(chunker(iter(blocks))), by_bucket)
            return [file for of_bucket in written for files in of_bucket for file in files]
        blocks = self._blocks.select("bucket", "seq_no", "least_row_id", "payload")
        together = blocks.repartitionById(self.buckets, "bucket")
        ordered = together.sortWithinPartitions("bucket", "seq_no", "least_row_id")
        answers = ordered.mapInArrow(partial(write_chunks, chunker=chunker), "files STRING").toArrow()["files"]
        return [WrittenFile(**file) for answer in answers.to_pylist() for file in json.loads(answer)]


def drifts(records: DataFrame) -> list[Drift]:
    """The rejects among `records` that are due to other columns than the declared ones, by rule and reason."""
    rejects = records.where(F.col("rule").isin(*_DRIFT_RULES)).groupBy("rule", "reason")
    return [Drift(*row) for row in rejects.agg(F.sum(F.expr(RECORDS)), F.min("file")).collect()]


def unpacked_bytes(file: LandingFile) -> int:
    """The approximate bytes of a file without compression, by its size and name; none of it is read."""
    return file.size * _UNPACKED.get(PurePath(file.path).suffix.lower(), 1)


def _bounds(files: list[LandingFile], form: Format, spec: RecordSpec, buckets: int) -> list[bytes]:
    """The first entity of each bucket but the first bucket. Each bucket is a range of entities, and so is a file of
    chunks, so that a query of an entity reads one of them."""
    buckets = min(buckets, MOST_BUCKETS)
    if buckets == 1:
        return []
    step = -(-len(files) // SAMPLED_FILES)
    sample = [rows for file in files[::step] if (rows := first_rows(file, form, spec)) is not None]
    names = sorted(n.encode() for rows in sample for n in rows.column("entity").drop_null().to_pylist())
    return sorted({names[len(names) * i // buckets] for i in range(1, buckets)}) if names else []


def _read(
    batches: Iterable[pa.RecordBatch],
    *,
    files: tuple[LandingFile, ...],
    form: Format,
    spec: RecordSpec,
    bounds: list[bytes],
    hash_ranges: int,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column("id").to_pylist():
            yield from _read_one(files[place], form, spec, bounds, hash_ranges)


def _read_one(
    file: LandingFile, form: Format, spec: RecordSpec, bounds: list[bytes], hash_ranges: int
) -> Iterator[pa.RecordBatch]:
    rows = rejects = whole = lines = entities = 0
    same = {"seq_no": file.seq_no, "file": file.path, "first_row_id": file.first_row_id}
    batches_of_block: list[pa.RecordBatch] = []
    for batch in read_file(file, form, spec):
        lines = max(lines, pc.max(batch.column("line")).as_py() or 0)
        bad = pc.is_valid(batch.column("rule"))
        rejected = batch.filter(bad)
        if rejected.num_rows:
            yield _fill_columns(REJECT, rejected.num_rows, same, {name: rejected.column(name) for name in _REJECTED})
            rejects += pc.sum(pc.fill_null(rejected.column("records"), 1)).as_py()
            lines = max(lines, pc.max(rejected.column("last_line")).as_py() or 0)
            whole += rejected.column("line").null_count
        good = batch.filter(pc.invert(bad)) if rejected.num_rows else batch
        batches_of_block.append(good.drop_columns(list(_NOT_IN_BLOCKS)))
        rows += good.num_rows
        if are_enough(batches_of_block, BLOCK_ROWS, BLOCK_BYTES):
            made, seen = _encode(batches_of_block, bounds, hash_ranges, same)
            entities, batches_of_block = max(entities, seen), []
            yield from made
    made, seen = _encode(batches_of_block, bounds, hash_ranges, same)
    yield from made
    counts = {"rows": rows, "rejects": rejects, "whole": whole, "lines": lines, "entities": max(entities, seen)}
    yield _fill_columns(FILE, 1, same, {name: pa.array([value], pa.int64()) for name, value in counts.items()})


def _encode(
    parts: list[pa.RecordBatch], bounds: list[bytes], hash_ranges: int, same: dict[str, Any]
) -> tuple[list[pa.RecordBatch], int]:
    """Blocks of these rows, and the number of their entities."""
    if not sum(part.num_rows for part in parts):
        return [], 0
    rows = pa.Table.from_batches(parts).combine_chunks()
    entity = rows.column("entity").chunk(0).dictionary_encode()
    of_entity = np.array([bisect_right(bounds, name.encode()) for name in entity.dictionary.to_pylist()], np.int32)
    of_row = of_entity[entity.indices.to_numpy()]
    made = []
    for bucket in np.unique(of_row).tolist():
        bucket_rows = rows.take(pa.array(np.flatnonzero(of_row == bucket))) if bounds else rows
        columns = {
            "bucket": pa.array([bucket], pa.int32()),
            "least_row_id": _whole(bucket_rows.column("row_id"))[:1],
            "payload": pa.array([_payload(bucket_rows)], pa.binary()),
        }
        if bucket_rows.column("delta_id").null_count == 0:
            hashes = ranges_of(hashes_of(bucket_rows.column("delta_id")), hash_ranges)
            columns["hashes"] = pa.array([[part.tobytes() for part in hashes]], pa.list_(pa.binary()))
        made.append(_fill_columns(BLOCK, 1, same, columns))
    return made, len(entity.dictionary)


def _gather_hashes(parts: pa.ChunkedArray) -> Hashes:
    return np.sort(np.frombuffer(b"".join(parts.drop_null().to_pylist()), np.uint64))


def _identities(batches: Iterable[pa.RecordBatch], *, wanted: BloomFilter) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for payload in batch.column("payload"):
            yield from _select_passing(payload, wanted).to_batches()


def _select_passing(payload: pa.Scalar, wanted: BloomFilter) -> pa.Table:
    """`row_id` and `delta_id` of a block's rows whose delta_ids pass the filter."""
    rows = decode(payload).select(["row_id", "delta_id"]).combine_chunks()
    return rows.filter(pa.array(wanted.may_contain(hashes_of(rows.column("delta_id")))))


def _payload(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_IPC) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def _fill_columns(kind: str, count: int, same: dict[str, Any], columns: dict[str, pa.Array]) -> pa.RecordBatch:
    constant = {"kind": kind, **same}
    made = []
    for field in _SCHEMA:
        if field.name in constant:
            made.append(pa.repeat(pa.scalar(constant[field.name], field.type), count))
        elif field.name in columns:
            made.append(_whole(columns[field.name]))
        else:
            made.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(made, schema=_SCHEMA)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _rows(batches: Iterable[pa.RecordBatch], *, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for block in batch.to_pylist():
            rows = pa.ipc.open_stream(block["payload"]).read_all()
            same = {name: block[name] for name in ("seq_no", "file")}
            columns = {n: pa.repeat(pa.scalar(v, schema.field(n).type), rows.num_rows) for n, v in same.items()}
            columns["line"] = pc.subtract(rows.column("row_id"), pa.scalar(block["first_row_id"] - 1, pa.int64()))
            arrays = [columns[f.name] if f.name in columns else rows.column(f.name) for f in schema]
            yield from pa.table(arrays, schema=schema).to_batches()
