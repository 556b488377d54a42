"""Job `rehearse`: runs a few rows of each source through every kernel, without Spark, so that the kernels are compiled.

    python -m spark_jobs.jobs.rehearse

Numba keeps compiled kernels beside their modules. Without this job a first run would compile them in its tasks, one by
one. The job needs no server and leaves nothing behind. `make setup` calls it. So does the process from which Spark
forks its workers (`worker_daemon`); the workers then have the kernels in memory.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.config import load_settings
from spark_jobs.definitions.definition import Definition, definitions
from spark_jobs.definitions.folding import fold_rows
from spark_jobs.definitions.meaning import meaning_of, policy_of
from spark_jobs.engine.chunks import chunk_columns
from spark_jobs.engine.columns import sequence_texts
from spark_jobs.engine.deltas import LATEST, REGISTERED, Segments, changes_of, pack, restate_chains, states_for, unpack
from spark_jobs.landing.chunking import chunk_limits
from spark_jobs.landing.files import list_drop_files
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.worker import read_file
from spark_jobs.restatement.restater import Restater, WorkerReport, fill_columns, row_schema
from spark_jobs.sources import Source, read_sources
from spark_jobs.sources.columns import DeclaredColumn

_VALUES = {"int": 1, "float": 0.5, "decimal": 0, "bool": True, "string": "a"}
_EPOCH_UNITS = {"epoch_s": 1, "epoch_ms": 10**3, "epoch_us": 10**6, "epoch_ns": 10**9}


def rehearse(source: Source, landing_root: Path) -> int:
    """Write a file of `source` below `landing_root`, and read, chunk, window and fold it; returns the number of rows.

    0 for a source of Parquet files or of a plugin's format, which other code reads, and if the source rejects the
    made-up rows.
    """
    if source.landing.form not in ("csv", "ndjson"):
        return 0
    _write_specimen(source, landing_root)
    # the rows are made up, so the source's checks may reject them
    spec = replace(record_spec(source), checks=())
    read = [b for f in list_drop_files(landing_root, source, 0) for b in read_file(f, source.landing.form, spec)]
    if not read:
        return 0
    rows = pa.Table.from_batches(read)
    rows = rows.filter(rows["rule"].is_null()).sort_by([("entity", "ascending"), ("row_id", "ascending")])
    if not rows.num_rows:
        return 0
    values = [f"c_{c}" for c in source.columns]
    timelines = ["event_time", *(f"t_{t}" for t in source.timelines)]
    limits = chunk_limits(source)
    chunk_columns(rows, entity="entity", row_id="row_id", timelines=timelines, components=values, config=limits)
    for definition in definitions(source):
        _window(definition, rows)
    if source.keeps_chains:
        _chain(source, rows)
    elif source.state is not None:
        _fold(source, rows)
    return rows.num_rows


def _write_specimen(source: Source, landing_root: Path) -> None:
    """Write a file of three rows, a minute apart, into the source's first drop."""
    start_s = source.drops.start_us // 10**6
    rows = [
        {source.header_name(name): _value(column, start_s + 60 * i) for name, column in source.columns.items()}
        for i in range(3)
    ]
    path = landing_root / source.drops.path(source.path, 0).replace("*", "specimen")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        if source.landing.form == "ndjson":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=source.landing.delimiter)
            writer.writeheader()
            writer.writerows(rows)


def _value(column: DeclaredColumn, time_s: int) -> object:
    if column.type not in ("timestamp", "date"):
        return _VALUES[column.kind]
    form = column.formats[0]
    if form in _EPOCH_UNITS:
        return time_s * _EPOCH_UNITS[form]
    time = datetime.fromtimestamp(time_s, UTC)
    if form != "iso":
        return time.strftime(form)
    return time.date().isoformat() if column.type == "date" else time.isoformat()


def _window(definition: Definition, rows: pa.Table) -> None:
    """Compute windows once as if no row were late and once as if all were, so that both ways are compiled."""
    for lo in (0, 2**60):
        kernel = Restater(definition, known_from_us=0, everything=True)
        for _ in kernel(iter([(_restater_rows(definition, rows, lo), None)]), WorkerReport()):
            pass


def _restater_rows(definition: Definition, rows: pa.Table, lo: int) -> pa.Table:
    """The rows in the form that workers get, in one slice, all of a drop that starts at `lo`."""
    taken = {f"k_{k}": rows[f"c_{k}"] for k in definition.key} | {
        f"v_{c}": rows[f"c_{c}"] for c in definition.values_read
    }
    taken |= {"time": rows[f"t_{definition.time}"].cast(pa.int64()), "row_id": rows["row_id"]}
    taken |= {"delta_id": rows["delta_id"], "vector": rows["entity"]}
    taken |= _constants(rows, diff=1, lo=lo, size=1, slice=0)
    taken["touched"] = pa.array([True] * rows.num_rows)
    table = fill_columns(pa.table(taken), row_schema(definition))
    for column in ("time", *(f"k_{k}" for k in definition.key)):
        table = table.filter(table[column].is_valid())
    return table


def _fold(source: Source, rows: pa.Table) -> None:
    columns = {f"v_{c}": rows[f"c_{c}"] for c in source.columns}
    times = {"entity": rows["entity"], "event_time": rows["event_time"].cast(pa.int64()), "row_id": rows["row_id"]}
    table = pa.table({**times, **columns, **_constants(rows, diff=1)})
    states = fold_rows(table, source)
    later = table.set_column(1, "event_time", pc.add(table["event_time"], 86_400_000_000))
    later = later.set_column(2, "row_id", pc.add(later["row_id"], 1 << 40))
    fold_rows(later, source, states)


def _chain(source: Source, rows: pa.Table) -> None:
    """Make deltas of the rows, and restate, pack, unpack and read chains of them."""
    meaning, policy = meaning_of(source), policy_of(source)
    entities = pc.unique(rows["entity"].combine_chunks())
    table = pa.table({"entity": rows["entity"], "event_time": rows["event_time"].cast(pa.int64()), **_operands(rows)})
    table = pa.table({**dict(zip(table.column_names, table.columns, strict=True)), **_constants(rows, diff=1, time=0)})
    table = table.append_column("row_id", rows["row_id"])
    if source.sequence:
        table = table.append_column("sequence", sequence_texts([rows[f"c_{c}"] for c in source.sequence]))
    for c in source.columns:
        if f"v_{c}" not in table.column_names:
            table = table.append_column(f"v_{c}", rows[f"c_{c}"])
    segments = Segments.empty(meaning.dtype, meaning.dims, ids=meaning.with_parents)
    for later in (0, 1):
        moved = table.set_column(1, "event_time", pc.add(table["event_time"], later * 86_400_000_000))
        moved = moved.set_column(moved.schema.get_field_index("row_id"), "row_id", pc.add(table["row_id"], later << 40))
        step = restate_chains(segments, changes_of(moved, entities, meaning), policy, as_of=0, transforms=REGISTERED)
        packed = pack(step.segments, entities, names=meaning.names, full_rows=meaning.full_rows)
        segments = unpack(packed, entities, dtype=meaning.dtype, dims=meaning.dims, ids=meaning.with_parents)
    now = np.full(len(entities), LATEST)
    states_for(segments, np.arange(len(entities)), now, now, transforms=REGISTERED)


def _operands(rows: pa.Table) -> dict[str, pa.Array]:
    """The columns that `definitions.meaning` reads of rows that name their operation."""
    n = rows.num_rows
    return {
        "v_op": pa.array(["dense"] * n), "v_indices": pa.array([[0]] * n), "v_values": pa.array([[0.0]] * n),
        "v_scalar": pa.array([0.0] * n), "v_transform": pa.nulls(n, pa.string()), "v_parent": pa.nulls(n, pa.string()),
        "unreadable": pa.array([False] * n), "delta_id": pa.array([str(i) for i in range(n)]),
    }  # fmt: skip


def _constants(rows: pa.Table, **values: int) -> dict[str, pa.Array]:
    return {name: pa.array([value] * rows.num_rows, pa.int64()) for name, value in values.items()}


def load_kernels(process: str) -> None:
    """Rehearse for the processes that this one forks.

    A failure is only written to standard error, with `process` as the name of this one. The forked processes then load
    the kernels themselves, and report an error if there is one.
    """
    # the process that started this one may read its standard output
    with contextlib.redirect_stdout(sys.stderr):
        try:
            main()
        except Exception as error:
            sys.stderr.write(f"{process} {os.getpid()}: kernels were not loaded: {type(error).__name__}: {error}\n")


def main() -> int:
    """Rehearse every source."""
    with tempfile.TemporaryDirectory() as folder:
        for source in read_sources(load_settings().sources).sources.values():
            rehearse(source, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
