"""Sample files as they lie around: their format, and the values of their columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.errors import ParameterError
from spark_jobs.kernels.records.delimiters import DELIMITERS
from spark_jobs.plugins.code import Format

SAMPLE_ROWS = 100_000
"""Records of each file that types are guessed from; the check reads all."""
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd"}
_ARROW_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_date, "date"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the files hold: values by column, as written (texts of CSV), or as JSON or Parquet have them."""

    form: Format
    delimiter: str
    columns: dict[str, list[Any]]
    types: dict[str, str]


def read_sample(path: Path) -> Sample:
    """The first records of a CSV, NDJSON or Parquet file, compressed or not; raises ParameterError for another."""
    try:
        start = path.open("rb").read(4)
        if start == b"PAR1":
            table = pq.read_table(path, coerce_int96_timestamp_unit="us").slice(0, SAMPLE_ROWS)
            types = {field.name: _declared(field.type) for field in table.schema}
            columns = {name: table[name].to_pylist() for name in table.column_names if types[name]}
            # what is text there may be a number or a time all the same
            return Sample("parquet", ",", columns, {n: t for n, t in types.items() if t not in ("", "string")})
        with pa.input_stream(str(path), compression=_MAGIC.get(start[:2])) as opened:
            lines = (line for line in io.TextIOWrapper(opened, encoding="utf-8-sig", newline="") if line.strip())
            head = list(islice(lines, SAMPLE_ROWS + 1))
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise refused("a readable sample file", f"{path}: {error}", "name a CSV, NDJSON or Parquet file") from None
    if not head:
        raise refused("a sample file with records", f"{path}, which is empty", "name another")
    return _json(path, head[:SAMPLE_ROWS]) if head[0].lstrip().startswith("{") else _csv(head)


def _declared(kind: pa.DataType) -> str:
    """The type that a source file declares for a column of Parquet, empty if there is none."""
    if pa.types.is_decimal(kind):
        whole = 0 <= kind.scale <= kind.precision <= 38
        return f"decimal({kind.precision}, {kind.scale})" if whole else ""
    return next((declared for fits, declared in _ARROW_TYPES if fits(kind)), "")


def _json(path: Path, lines: Iterable[str]) -> Sample:
    columns: dict[str, list[Any]] = {}
    for number, line in enumerate(lines):
        try:
            fields = json.loads(line)
        except ValueError:
            continue  # the reader will reject it, with its line
        for column, value in fields.items() if isinstance(fields, dict) else ():
            held = columns.setdefault(column, [])
            held += [None] * (number - len(held)) + [value]
    # a nested value can't be declared: it stays with its row as it is
    flat = {c: v for c, v in columns.items() if not any(isinstance(value, (dict, list)) for value in v)}
    if not flat:
        raise refused("records with fields", f"{path} without any", "name another file")
    return Sample("ndjson", ",", flat, {})


def _csv(lines: Sequence[str]) -> Sample:
    delimiter = max(DELIMITERS, key=lines[0].count)
    header, *records = csv.reader(lines, delimiter=delimiter)
    whole = [record for record in records if len(record) == len(header)]
    return Sample("csv", delimiter, {name: [r[i] for r in whole] for i, name in enumerate(header)}, {})


def refused(expected: str, found: str, next_step: str) -> ParameterError:
    """Why nothing can be guessed."""
    return ParameterError(expected=expected, found=found, consequence="nothing was written", next_step=next_step)
