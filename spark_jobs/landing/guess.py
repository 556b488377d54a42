"""A source file guessed from sample files: what their values tell is filled in, the rest is left to whoever knows.

Types follow from the values, and hold only if the product's own reader reads the sample with them: a column that it
rejects becomes text. A column is a decimal only where a file's own schema says so: whether numbers with always two
decimals are money or a measurement no value tells, so they become floats with a remark. The entity is the text column
whose values repeat most variedly, the event time the first time column that every row has; both can be given.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.landing.files import LandingFile
from spark_jobs.landing.guessed_checks import guessed_checks
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.sampling import Sample, read_sample, refused
from spark_jobs.landing.worker import read_file
from spark_jobs.sources import Source, parse_source
from spark_jobs.sources.quantities import instant_at
from spark_jobs.sources.section import check_identifier

NULLS = ("NA", "N/A", "NaN", "nan", "null", "NULL", "None", "\\N")
"""Texts that stand for no value wherever the other values of the column are no text."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_INT = re.compile(r"[+-]?(0|[1-9]\d{0,18})")
# neither a code that begins with 0 nor a number that a double can't hold is one
_FLOAT = re.compile(r"[+-]?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_FIXED = re.compile(r"[+-]?\d{1,12}\.\d{2,6}")
_EPOCHS = {"epoch_s": 1, "epoch_ms": 10**3, "epoch_us": 10**6, "epoch_ns": 10**9}
_EPOCH_NAME = re.compile(r"(^|_)(time|timestamp|ts|at|epoch|when)(_|$)")
_EPOCH_RANGE_S = 631_152_000, 4_102_444_800
"""The years 1990 to 2099: a column of integers that is named like a time and lies in it counts since 1970."""
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")


@dataclass(frozen=True, slots=True)
class Guess:
    """A source file's `text`, the source that it declares, and how many of the sample's rows it reads and rejects."""

    text: str
    source: Source
    rows: int
    rejected: dict[str, int]


def guess_source(
    files: Sequence[Path], *, name: str | None = None, entity: str | None = None, time: str | None = None
) -> Guess:
    """The source file that suits these sample files.

    Raises:
        ParameterError: a file can't be read, or holds nothing that could be the entity or the event time.
    """
    samples = [read_sample(path) for path in files]
    first = samples[0]
    if any((s.form, s.delimiter) != (first.form, first.delimiter) for s in samples):
        raise refused("files of one format", "several", "make a source of each")
    columns: dict[str, list[Any]] = {}
    for sample in samples:
        for column, values in sample.columns.items():
            columns.setdefault(column, []).extend(values)
    types, nulls = _types(columns, {k: v for s in samples for k, v in s.types.items()})
    headers: dict[str, str] = {}
    for header in types:
        plain = _identifier(header)
        others = sum(re.fullmatch(rf"{plain}(_\d+)?", taken) is not None for taken in headers)
        headers[plain if plain not in headers else f"{plain}_{others + 1}"] = header
    kept = {column: _values(columns[header], nulls) for column, header in headers.items()}
    n_rows = max(map(len, columns.values()))
    kinds = {column: types[header] for column, header in headers.items()}
    if not {"timestamp", "date"} & {*kinds.values()}:
        kinds |= {c: unit for c in kinds if (unit := _epoch(c, kinds[c], kept[c]))}
    called = _name(files[0], name)

    def declared(start: datetime | None = None) -> tuple[str, Source]:
        text = _text(
            called, first, nulls, headers, kinds, n_rows,
            entity=_entity(kinds, kept, n_rows, entity), time=_time(kinds, kept, n_rows, time), values=kept,
            start=start,
        )  # fmt: skip
        return text, parse_source(text, file=f"{called}.yml")

    while True:
        text, source = declared()
        read = _check(source, files)
        misread = [c for c in kinds if kinds[c] != "string" and any(f"column `{c}`" in r for r in read.rejected)]
        if not misread:
            break
        kinds |= dict.fromkeys(misread, "string")
    if read.first is not None:
        text, source = declared(read.first)
    return Guess(text, source, read.rows, read.rejected)


def _types(columns: dict[str, list[Any]], known: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """The type of each column, and the texts that stand for no value."""
    types: dict[str, str] = {}
    nulls: set[str] = set()
    for column, values in columns.items():
        present = {value for value in values if value not in (None, "")}
        marks = present & {*NULLS}
        types[column] = known.get(column) or _type(present - marks)
        if types[column] != "string":
            nulls |= marks
    return types, sorted(nulls)


def _type(values: set[Any]) -> str:
    if values and all(isinstance(value, bool) for value in values):
        return "bool"
    if any(isinstance(value, bool) for value in values) or not values:
        return "string"
    if any(isinstance(value, float) for value in values) and all(isinstance(value, (int, float)) for value in values):
        return "float"
    texts = [value if isinstance(value, str) else repr(value) for value in values]
    if all(map(_INT.fullmatch, texts)):
        return "int" if all(-(2**63) <= int(text) < 2**63 for text in texts) else "string"
    for kind, holds in (("float", _FLOAT.fullmatch), ("date", _DATE.fullmatch)):
        if all(map(holds, texts)):
            return kind
    if all(text.lower() in ("true", "false") for text in texts):
        return "bool"
    return "timestamp" if all(map(_INSTANT.match, texts)) else "string"


def _epoch(column: str, kind: str, values: Sequence[Any]) -> str | None:
    """The unit of a column of integers that are times, None for another."""
    if kind != "int" or not values or not _EPOCH_NAME.search(column):
        return None
    least, greatest = (edge(int(value) for value in values) for edge in (min, max))
    first_s, last_s = _EPOCH_RANGE_S
    return next((u for u, n in _EPOCHS.items() if first_s * n <= least and greatest < last_s * n), None)


def _values(values: Iterable[Any], nulls: Sequence[str]) -> list[Any]:
    return [value for value in values if value not in (None, "") and value not in nulls]


def _entity(kinds: dict[str, str], kept: dict[str, list[Any]], n_rows: int, given: str | None) -> str:
    if given is not None:
        return _named(given, kinds, "entity")
    # what a row may lack is no entity; what each row has of its own or all share tells no two entities apart
    counts = {c: len(set(v)) for c, v in kept.items() if kinds[c] in ("string", "int") and len(v) >= 0.95 * n_rows}
    for kind in ("string", "int"):
        able = {c: n for c, n in counts.items() if kinds[c] == kind and 1 < n <= n_rows / 2}
        if able:
            return max(able, key=able.__getitem__)
    shared = [c for c in counts if kinds[c] == "string"]
    if shared:
        return shared[0]
    raise refused("a column of text that says which entity a row changes", "none", "name it with --entity")


def _time(kinds: dict[str, str], kept: dict[str, list[Any]], n_rows: int, given: str | None) -> str:
    times = _of_kinds(kinds, "timestamp", *_EPOCHS) or _of_kinds(kinds, "date")
    if given is not None:
        return _named(given, dict.fromkeys(times, ""), "time")
    if not times:
        raise refused("a column of times, in the form of ISO 8601 or since 1970", "none", "name a file with one")
    return max(times, key=lambda column: len(kept[column]) >= n_rows)


def _of_kinds(kinds: dict[str, str], *wanted: str) -> list[str]:
    return [column for column, kind in kinds.items() if kind in wanted]


def _named(given: str, columns: Iterable[str], option: str) -> str:
    if given in columns:
        return given
    raise refused(f"one of the columns {', '.join(columns)}", repr(given), f"name one of them with --{option}")


def _text(
    name: str, sample: Sample, nulls: Sequence[str], headers: dict[str, str], kinds: dict[str, str], n_rows: int,
    *, entity: str, time: str, values: dict[str, list[Any]], start: datetime | None,
) -> str:  # fmt: skip
    """The source file; without a `start` it begins with the sample's first event."""
    times = [c for c in _of_kinds(kinds, "timestamp", *_EPOCHS) or [time] if values[c]]
    ids = [c for c in kinds if c.endswith("id") and c != entity and len(set(values[c])) == n_rows]
    start = start or min(_instant(value, kinds[time]) for value in values[time])
    listed = [f"  {c}: {_column(c, headers[c], kinds[c])}{_remark(kinds[c], values[c])}" for c in kinds]
    delimiter = [f"  delimiter: {json.dumps(sample.delimiter)}"] if sample.delimiter != "," else []
    marks = [f"  null_values: {json.dumps(['', *nulls])}"] if nulls else []
    means = [f"      mean_{c}: avg({c})" for c in _of_kinds(kinds, "float")]
    means += [f"      sum_{c}: sum({c})" for c in kinds if kinds[c].startswith("decimal")]
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
            *delimiter,
            *marks,
            "",
            "# Types are those of the sample's values; a value that is of another type puts its row in quarantine.",
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
            *guessed_checks(kinds, values, n_rows),
            "# What rows do to their entity can't be told from values: with `state`, gold keeps what becomes of it.",
            "",
            "dag:",
            "  schedule: manual   # people start its runs, from `start` on; or: every, a run after each drop's end",
            "",
        ]
    )


def _column(column: str, header: str, kind: str) -> str:
    told = [f"from: {json.dumps(header, ensure_ascii=False)}"] if column != header else []
    told += [f"format: {kind}"] if kind in _EPOCHS else []
    kind = "timestamp" if kind in _EPOCHS else json.dumps(kind) if told and "," in kind else kind
    return f"{{{', '.join([f'type: {kind}', *told])}}}" if told else kind


def _remark(kind: str, values: Sequence[Any]) -> str:
    """What a column of floats may be instead: numbers that are all written with as many decimals."""
    places = {len(v.partition(".")[2]) if isinstance(v, str) and _FIXED.fullmatch(v) else 0 for v in values}
    if kind != "float" or len(places) != 1 or 0 in places:
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
    """What the source is called: as the folder above those of dates is, else as the file is."""
    if given is not None:
        return given
    folder = path.resolve().parent
    of_date = _DATE.fullmatch(folder.name) and folder.parent.name
    return _identifier(folder.parent.name if of_date else path.name.split(".")[0])


def _instant(value: Any, kind: str) -> datetime:
    if kind in _EPOCHS:
        return datetime.fromtimestamp(int(value) // _EPOCHS[kind], UTC)
    time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


@dataclass(slots=True)
class _Read:
    """What came of reading all of the files: rows, how often each reason rejects one, the first event time."""

    rows: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    first: datetime | None = None


def _check(source: Source, files: Sequence[Path]) -> _Read:
    """Read the files from end to end, batch by batch, as the source would."""
    read = _Read()
    for path in files:
        with path.open("rb") as opened:
            checksum = hashlib.file_digest(opened, "sha256").hexdigest()
        status = path.stat()
        listed = LandingFile(0, path.name, 1, status.st_size, checksum, status.st_mtime_ns, str(path.resolve()))
        for batch in read_file(listed, source.landing.form, record_spec(source)):
            read.rows += batch["rule"].null_count
            bad = batch.filter(pc.is_valid(batch["reason"]))
            for reason, records in zip(bad["reason"].to_pylist(), bad["records"].to_pylist(), strict=True):
                read.rejected[reason] = read.rejected.get(reason, 0) + (records or 1)
            least = pc.min(batch["event_time"]).cast(pa.int64()).as_py()
            if least is not None:
                first = instant_at(least)
                read.first = first if read.first is None else min(read.first, first)
    return read
