"""A source file guessed from sample files: it is filled in as most of their values suggest, and people write the rest.

A column gets the type with which the product's own reader reads most of its values (`guessed_types`). Records that
don't read with these types are reported with their line and reason, as they would be in quarantine. A column is a
decimal only if a file's own schema says so: no value shows whether numbers with always two decimals are money or a
measurement, so they become floats with a remark. The entity is the text column whose values repeat most variedly, the
event time the first time column that every row has; both can be given.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels.records import ColumnSpec
from spark_jobs.kernels.records.slow import Cell
from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.guessed_checks import guessed_checks
from spark_jobs.landing.guessed_types import NULLS, Kind, epoch_of, kind_of, read_by, writes_commas
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.sampling import Sample, read_sample, refused
from spark_jobs.landing.worker import read_file
from spark_jobs.sources import Source, parse_source
from spark_jobs.sources.quantities import DAY_US, instant_at
from spark_jobs.sources.section import check_identifier

LEAST_SHARE = 0.01
"""The least share of a file's rows that a day must have to count as its last one: a few rows with a wrong year don't
decide it."""
MOST_REJECTS = 20
"""The most rejected records that are listed one by one."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_FIXED = re.compile(r"[+-]?\d{1,12}\.\d{2,6}")
_OF_COLUMN = re.compile(r"column `([^`]*)`: ")
_UNKNOWN_START = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Guess:
    """A source file's `text`, the source that it declares, and the numbers of the sample's records that it reads and
    rejects.

    `rejected`: number of rejected records by reason. `rejects`: the first of them, each `{"file", "line", "rule",
    "reason"}`. `left_out`: columns of the sample for which nothing can be declared: objects, arrays, times of day.
    """

    text: str
    source: Source
    rows: int
    rejected: dict[str, int]
    rejects: list[dict[str, Any]]
    left_out: tuple[str, ...]
    last_days_us: tuple[int | None, ...]
    """For each file, the midnight of the last day that has at least `LEAST_SHARE` of its rows; None without rows."""


@dataclass(slots=True)
class _Columns:
    """The columns of a guess by their names in the source file: headers, types, and the values that read as these
    types. Of its `n_rows` rows, `n_distinct` differ: a row that came again is equal in each column."""

    headers: dict[str, str]
    kinds: dict[str, Kind]
    values: dict[str, list[str]]
    optional: frozenset[str]
    n_rows: int
    n_distinct: int

    def of_types(self, *wanted: str) -> list[str]:
        """The names of the columns of these types."""
        return [column for column, kind in self.kinds.items() if kind.type in wanted]


def guess_source(
    files: Sequence[Path], *, name: str | None = None, entity: str | None = None, time: str | None = None
) -> Guess:
    """The source file that fits these sample files.

    Raises:
        ParameterError: a file can't be read, or has no column that could be the entity or the event time.
    """
    samples = [read_sample(path) for path in files]
    first = samples[0]
    if any((s.form, s.landing) != (first.form, first.landing) for s in samples):
        raise refused("files of one format", "several", "make a source of each")
    columns, landing = _columns(samples)
    called = _name(files[0], name)
    keys = _entity(columns, entity), _time(columns, time)

    def declared(start: datetime) -> tuple[str, Source]:
        text = _text(called, first, landing, columns, *keys, start)
        return text, parse_source(text, file=f"{called}.yml")

    while True:
        text, source = declared(_UNKNOWN_START)
        read = _check(source, files)
        misread = [
            c for c, n in read.columns.items() if columns.kinds[c].type != "string" and c != keys[1] and n > read.rows
        ]
        if not misread:
            break
        columns.kinds |= dict.fromkeys(misread, Kind("string"))
    if read.first is not None:
        text, source = declared(read.first)
    left_out = tuple(sorted({name for sample in samples for name in sample.left_out}))
    return Guess(text, source, read.rows, read.rejected, read.rejects, left_out, tuple(read.last_days_us))


def _columns(samples: Sequence[Sample]) -> tuple[_Columns, dict[str, Any]]:
    """The columns of the samples, and the keys of their landing."""
    cells: dict[str, list[Cell]] = {}
    for sample in samples:
        for header, of_file in sample.columns.items():
            cells.setdefault(header, []).extend(of_file)
    if not cells:
        raise refused("a sample file with columns", "none", "name another file")
    landing: dict[str, Any] = {**samples[0].landing}
    if samples[0].form == "csv":
        landing |= writes_commas(cells.values())
    known = {header: kind for sample in samples for header, kind in sample.types.items()}
    headers: dict[str, str] = {}
    for header in cells:
        plain = _identifier(header)
        others = sum(re.fullmatch(rf"{plain}(_\d+)?", taken) is not None for taken in headers)
        headers[plain if plain not in headers else f"{plain}_{others + 1}"] = header
    specs = {c: _spec(c, h, landing, NULLS) for c, h in headers.items()}
    kinds = {c: Kind(known[h]) if h in known else kind_of(c, cells[h], specs[c]) for c, h in headers.items()}
    if not any(kind.is_time for kind in kinds.values()):
        kinds |= {c: e for c, h in headers.items() if (e := epoch_of(c, kinds[c], cells[h], specs[c])) is not None}
    marks = {text for c, h in headers.items() if kinds[c].type != "string" for _, text in cells[h]} & {*NULLS}
    if marks:
        landing["null_values"] = ["", *sorted(marks)]
    values = {}
    for column, header in headers.items():
        # a text that means no value in other columns does so here
        values[column] = _values(cells[header], kinds[column], _spec(column, header, landing, sorted(marks)))
    partial = {h for sample in samples for h in sample.partial}
    partial |= {h for h in cells for sample in samples if h not in sample.columns}
    optional = frozenset(c for c, h in headers.items() if h in partial)
    n_rows = sum(sample.n_rows for sample in samples)
    return _Columns(headers, kinds, values, optional, n_rows, _distinct(samples)), landing


def _distinct(samples: Sequence[Sample]) -> int:
    """The number of rows that differ from each other."""
    rows: set[tuple[tuple[str, Cell], ...]] = set()
    for sample in samples:
        columns = sorted(sample.columns.items())
        named = [[(header, cell) for cell in cells] for header, cells in columns]
        rows.update(zip(*named, strict=True))
    return len(rows)


def _spec(column: str, header: str, landing: dict[str, Any], nulls: Sequence[str]) -> ColumnSpec:
    marks = {key: landing[key] for key in ("decimal", "thousands") if key in landing}
    return ColumnSpec(column, header, "string", ("", *nulls), **marks)


def _values(cells: Sequence[Cell], kind: Kind, spec: ColumnSpec) -> list[str]:
    """The values that read as the type `kind`; numbers have a decimal point."""
    if kind.type.startswith("decimal"):
        return [text for _, text in cells if text]
    read = read_by(_typed(spec, kind), cells)
    texts = [text for (_, text), good in zip(cells, read, strict=True) if good]
    if kind.type in ("int", "float"):
        return [text.replace(spec.thousands or " ", "").replace(spec.decimal, ".").strip() for text in texts]
    return texts


def _typed(spec: ColumnSpec, kind: Kind) -> ColumnSpec:
    return replace(spec, type=kind.type, time_formats=(kind.format,))  # type: ignore[arg-type]


def _entity(columns: _Columns, given: str | None) -> str:
    if given is not None:
        return _named(given, columns.kinds, "entity")
    # a column that rows lack is no entity, nor is one whose values mostly differ or are all the same
    n_rows = columns.n_rows
    named = {c: v for c, v in columns.values.items() if len(v) >= 0.95 * n_rows}
    counts = {c: len(set(named[c])) for c in columns.of_types("string", "int") if c in named}
    for kind in ("string", "int"):
        able = {c: n for c, n in counts.items() if columns.kinds[c].type == kind and 1 < n <= n_rows / 2}
        if able:
            return max(able, key=able.__getitem__)
    shared = [c for c in counts if columns.kinds[c].type == "string"]
    if shared:
        return shared[0]
    raise refused("a column of text that says which entity a row changes", "none", "name it with --entity")


def _time(columns: _Columns, given: str | None) -> str:
    times = columns.of_types("timestamp") or columns.of_types("date")
    if given is not None:
        return _named(given, dict.fromkeys(times, ""), "time")
    if not times:
        expected = "a column of times, most of which read: as ISO 8601, since 1970, or by a common pattern"
        next_step = "write the source file by hand, the column with `format:` and a pattern such as %d.%m.%Y"
        raise refused(expected, "none", next_step)
    return max(times, key=lambda column: len(columns.values[column]) >= columns.n_rows)


def _named(given: str, columns: Iterable[str], option: str) -> str:
    if given in columns:
        return given
    raise refused(f"one of the columns {', '.join(columns)}", repr(given), f"name one of them with --{option}")


def _text(
    name: str, sample: Sample, landing: dict[str, Any], columns: _Columns, entity: str, time: str, start: datetime
) -> str:
    """The text of the source file."""
    kinds, values = columns.kinds, columns.values
    times = [c for c in columns.of_types("timestamp") or [time] if values[c]]
    able = [c for c in kinds if c.endswith("id") and c != entity and len(values[c]) == columns.n_rows]
    # a row that came again has its id again
    ids = [c for c in able if len(set(values[c])) == columns.n_distinct]
    listed = [f"  {c}: {_column(c, columns, {entity, time})}{_remark(kinds[c], values[c])}" for c in kinds]
    means = [f"      mean_{c}: avg({c})" for c in columns.of_types("float")]
    means += [f"      sum_{c}: sum({c})" for c in kinds if kinds[c].type.startswith("decimal")]
    types = {column: kind.type for column, kind in kinds.items()}
    return "\n".join(
        [
            "# Guessed by `tidemark init` from sample files: look through it, then `tidemark plan` says what it makes.",
            f"source: {name}",
            "",
            f"start: {start:%Y-%m-%d}   # the day of the files' first event; drop n holds what arrived on day n, UTC",
            "every: 1 day",
            "",
            "landing:",
            f"  path: {name}/{{date}}/*   # below the landing directory",
            f"  format: {sample.form}",
            *(f"  {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in landing.items()),
            "",
            "# Types are those of most of the sample's values; a value of another type puts its row in quarantine.",
            "columns:",
            *listed,
            "",
            f"timelines: [{', '.join([time, *(c for c in times if c != time)])}]",
            f"event_time: {time}",
            f"entity: {entity}   # a row without one goes to quarantine",
            *([f"delta_id: {ids[0]}   # rows with equal ones are one delta, landed once"] if ids else []),
            "",
            "windows:",
            f"  {name[:50]}_hourly:",
            "    kind: tumbling",
            "    size: 1 hour",
            f"    key: {entity}",
            "    aggregates:",
            "      rows_counted: count()",
            *means,
            "",
            *guessed_checks(types, values, columns.n_rows),
            "# What rows do to their entity can't be told from values: with `state`, gold keeps what becomes of it.",
            "",
            "dag:",
            "  schedule: manual   # people start its runs, from `start` on; or: every, a run after each drop's end",
            "",
        ]
    )


def _column(column: str, columns: _Columns, needed: set[str]) -> str:
    header, kind = columns.headers[column], columns.kinds[column]
    told = [f"from: {json.dumps(header, ensure_ascii=False)}"] if column != header else []
    told += [f"format: {json.dumps(kind.format)}"] if kind.format != "iso" else []
    told += ["optional: true"] if column in columns.optional and column not in needed else []
    shown = json.dumps(kind.type) if told and "," in kind.type else kind.type
    return f"{{{', '.join([f'type: {shown}', *told])}}}" if told else shown


def _remark(kind: Kind, values: Sequence[str]) -> str:
    """A comment about another possible type of a column: for floats that all have as many decimals, and for times that
    another format fits as well."""
    if kind.doubt:
        return f"   # {kind.doubt} fits as well: say which it is"
    places = {len(v.partition(".")[2]) if _FIXED.fullmatch(v) else 0 for v in values}
    if kind.type != "float" or len(places) != 1 or 0 in places:
        return ""
    (scale,) = places
    return f"   # always {scale} decimals: decimal(18, {scale}) if this is money, whose sums must be exact"


def _identifier(header: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", header.lower()).strip("_")[:60]
    plain = plain if plain[:1].isalpha() else f"c_{plain}"
    try:
        return str(check_identifier(plain))
    except ValueError:
        return f"{plain}_"


def _name(path: Path, given: str | None) -> str:
    """The name of the source: that of the file or, if it or its folder is a date, of the first folder above that is
    none."""
    if given is not None:
        return given
    resolved = path.resolve()
    own = resolved.name.split(".")[0]
    above = [folder.name for folder in resolved.parents if folder.name]
    if not _DATE.fullmatch(own) and not (above and _DATE.fullmatch(above[0])):
        return _identifier(own)
    return _identifier(next((folder for folder in above if not _DATE.fullmatch(folder)), own))


@dataclass(slots=True)
class _Read:
    """The result of reading all files: the number of rows, and that of rejected records by reason; the first of these
    records; the number of records that each column rejects; and the first event time."""

    rows: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, int] = field(default_factory=dict)
    first: datetime | None = None
    last_days_us: list[int | None] = field(default_factory=list)
    _days: Counter[int] = field(default_factory=Counter)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch of a file's records."""
        self.rows += batch["rule"].null_count
        for reject in batch.filter(pc.is_valid(batch["reason"])).to_pylist():
            records = reject["records"] or 1
            self.rejected[reject["reason"]] = self.rejected.get(reject["reason"], 0) + records
            if match := _OF_COLUMN.match(reject["reason"]):
                self.columns[match[1]] = self.columns.get(match[1], 0) + records
            if len(self.rejects) < MOST_REJECTS:
                self.rejects.append({key: reject[key] for key in ("file", "line", "rule", "reason")})
        times = batch["event_time"].drop_null().cast(pa.int64()).to_numpy()
        days, rows = np.unique(times // DAY_US, return_counts=True)
        self._days.update(dict(zip(days.tolist(), rows.tolist(), strict=True)))
        least = pc.min(batch["event_time"]).cast(pa.int64()).as_py()
        if least is not None:
            first = instant_at(least)
            self.first = first if self.first is None else min(self.first, first)

    def end_file(self) -> None:
        """Conclude a file: keep the last day of its rows."""
        days, self._days = self._days, Counter()
        least = LEAST_SHARE * days.total()
        self.last_days_us.append(max((day * DAY_US for day, rows in days.items() if rows >= least), default=None))


def _check(source: Source, files: Sequence[Path]) -> _Read:
    """Read the files from end to end, batch by batch, as the source would."""
    read = _Read()
    for path in files:
        with path.open("rb") as opened:
            checksum = hashlib.file_digest(opened, "sha256").hexdigest()
        status = path.stat()
        listed = LandingFile(0, path.name, 1, status.st_size, checksum, status.st_mtime_ns, str(path.resolve()))
        for batch in read_file(listed, source.landing.form, record_spec(source)):
            read.add(batch)
        read.end_file()
    return read
