"""Sample files of unknown formats: how they are written, and the cells of their columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.engine.records import (
    LITERAL,
    NESTED,
    NULL,
    TEXT,
    UTF8,
    Cell,
    Envelope,
    FileRejectedError,
    RecordSpec,
    array_lines,
    as_utf8,
    column_texts,
    parse_object,
    without_unnamed,
)
from spark_jobs.landing.dialects import guess_dialect, read_records, unreadable_sample
from spark_jobs.landing.foreign_formats import foreign_format
from spark_jobs.landing.opened import UnusableFileError
from spark_jobs.landing.worker import Expansion, Hashed, plain_blocks
from spark_jobs.plugins.code import Format

SAMPLE_ROWS = 100_000
"""Records of each file from which types are guessed; the check reads all."""
_SAMPLE_BYTES = 256 << 20
_HEAD_BYTES = 4_096
_MOST_ZEROS = 0.002
"""The most bytes of zero among the characters of a text; of bytes at random, one in 256 is zero."""
_MOST_EXPANSION = 2_000
_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
_ENVELOPES: tuple[Envelope, ...] = ("debezium", "maxwell")
_ARROW_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_date, "date"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "string"),
    (pa.types.is_large_binary, "string"),
)
_EXTENSIONS = ("arrow.uuid", "arrow.json")


@dataclass(frozen=True, slots=True)
class Sample:
    """The content of a sample file: the cells of each column, record by record, including those without a value.

    `landing`: the keys of a source file's landing that describe how the file is written. `types`: the columns' types in
    the file's own schema. `partial`: columns that some record lacks. `left_out`: columns that can't be declared.
    """

    form: Format
    n_rows: int
    columns: dict[str, list[Cell]]
    landing: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    partial: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()
    evidence: str = ""
    """The numbers that speak for the delimiter of CSV."""


def read_sample(path: Path) -> Sample:
    """The first records of a file of CSV, NDJSON, JSON or Parquet, compressed or not.

    Raises:
        ParameterError: the file has another format, can't be read, or has no record.
    """
    try:
        with path.open("rb") as opened:
            begin = opened.read(_HEAD_BYTES)
        if begin.startswith(b"PAR1"):
            return _parquet(path)
        _refuse_foreign(begin, path)
        encoding, text = _text(path)
    except (OSError, UnusableFileError, pa.ArrowException) as error:
        raise unreadable_sample(
            "a readable sample file", f"{path}: {error}", "name a CSV, JSON or Parquet file"
        ) from None
    # a few are in lines that the reader rejects one by one
    if "\0" in text[:_HEAD_BYTES].partition("\n")[0] or text.count("\0") > _MOST_ZEROS * len(text):
        finding = f"{path.name}, which has bytes of zero as no text has"
        raise unreadable_sample("a file of CSV, JSON or Parquet", finding, "export the data as CSV, NDJSON or Parquet")
    if not text.strip():
        raise unreadable_sample("a sample file with records", f"{path}, which is empty", "name another")
    written = {} if encoding == UTF8 else {"encoding": encoding}
    start = text.lstrip()[:1]
    if start == "{":
        return _json(path, "ndjson", text.split("\n"), written)
    if start == "[":
        return _json(path, "json", _elements(text), written)
    return _csv(path, text, written)


def _refuse_foreign(head: bytes, path: Path) -> None:
    """Refuse a file that begins as one of a format that nothing reads."""
    foreign = foreign_format(head)
    if foreign is not None:
        raise unreadable_sample(
            "a file of CSV, JSON or Parquet, plain or compressed with gzip or zstd",
            f"{path.name}, {foreign[0]}",
            foreign[1],
        )


def _text(path: Path) -> tuple[str, str]:
    """The encoding that a source file has to name, and the beginning of the text, in whole lines."""
    with path.open("rb", buffering=0) as raw:
        blocks = plain_blocks(Hashed(raw), Expansion(path.stat().st_size, _MOST_EXPANSION))
        head, lines = b"", 0
        for block in blocks:
            head += block
            lines += block.count(b"\n")
            if lines > SAMPLE_ROWS or len(head) > _SAMPLE_BYTES:
                # whole lines: each ends in a newline, of two bytes in UTF-16
                head = head[: head.rindex(b"\n") + 1]
                break
    _refuse_foreign(head[:_HEAD_BYTES], path)
    encoding = UTF8 if head.startswith(_BOMS) else _guess_encoding(head)
    return encoding, b"".join(as_utf8([head], encoding)).decode("utf-8-sig", "replace")


def _guess_encoding(head: bytes) -> str:
    if head.count(0) > len(head) // 4:
        return "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
    try:
        head.decode()
    except UnicodeDecodeError:
        return "cp1252"
    return UTF8


def _parquet(path: Path) -> Sample:
    opened = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    types = {f.name: _type_to_declare(f.type) for f in opened.schema_arrow}
    batches = list(islice(opened.iter_batches(batch_size=SAMPLE_ROWS, columns=[n for n in types if types[n]]), 1))
    columns: dict[str, list[Cell]] = {}
    for name in (n for n in types if types[n]):
        texts = column_texts(batches[0][name]) if batches else []
        is_time = types[name] in ("timestamp", "date")
        if is_time:
            # instants are printed with quotes around them, as in JSON
            texts = [text and text.strip('"') for text in texts]
        kind = TEXT if is_time or types[name] == "string" else LITERAL
        columns[name] = [(NULL, "") if text is None else (kind, text) for text in texts]
    # a column of text may still have numbers or times
    types_of_file = {name: kind for name, kind in types.items() if kind not in ("", "string")}
    left_out = tuple(name for name, kind in types.items() if not kind)
    return Sample("parquet", batches[0].num_rows if batches else 0, columns, types=types_of_file, left_out=left_out)


def _type_to_declare(kind: pa.DataType) -> str:
    """The type that a source file declares for a column of Parquet, empty if there is none."""
    if isinstance(kind, pa.ExtensionType):
        return "string" if kind.extension_name in _EXTENSIONS else ""
    if pa.types.is_dictionary(kind):
        return _type_to_declare(kind.value_type)
    if pa.types.is_decimal(kind):
        whole = 0 <= kind.scale <= kind.precision <= 38
        return f"decimal({kind.precision}, {kind.scale})" if whole else ""
    return next((declared for fits, declared in _ARROW_TYPES if fits(kind)), "")


def _elements(text: str) -> Iterator[str]:
    try:
        for lines in array_lines([text.encode()], _SAMPLE_BYTES):
            yield from lines.decode().splitlines()
    except FileRejectedError:
        return  # the reader rejects the whole file for it


def _json(path: Path, form: Format, lines: Iterable[str], written: dict[str, str]) -> Sample:
    records = list(islice((line for line in lines if line.strip()), SAMPLE_ROWS))
    envelope = _envelope(records)
    spec = RecordSpec((), (), (), "", envelope=envelope)
    columns: dict[str, list[Cell]] = {}
    number, present = 0, dict[str, int]()
    for record in records:
        members = parse_object(record, spec)
        if isinstance(members, str):
            continue  # the reader will reject it, with its line
        for column, cell in members.items():
            cells = columns.setdefault(column, [])
            cells += [(NULL, "")] * (number - len(cells)) + [cell]
            present[column] = present.get(column, 0) + 1
        number += 1
    # a nested value can't be declared: it stays with its row as it is
    nested = [name for name, cells in columns.items() if any(kind == NESTED for kind, _ in cells)]
    flat = {name: cells for name, cells in columns.items() if name not in nested}
    if not flat:
        _refuse_whole(path, records)
        raise unreadable_sample("records with fields", f"{path} without any", "name another file")
    written = written if envelope is None else {**written, "envelope": envelope}
    partial = frozenset(name for name, n in present.items() if n < number)
    return Sample(form, number, flat, written, partial=partial, left_out=tuple(nested))


def _refuse_whole(path: Path, lines: Sequence[str]) -> None:
    """Refuse lines of which none is a record, but which together are JSON: an object over several lines, or one with
    the records in a member."""
    try:
        whole = json.JSONDecoder().raw_decode("\n".join(lines).lstrip())[0]
    except ValueError:
        return
    inner = [name for name, value in whole.items() if isinstance(value, list)] if isinstance(whole, dict) else []
    finding = f"{path.name}, in which an object spans several lines"
    finding += f" and has the records in its member `{inner[0]}`" if inner else ""
    query = f".{inner[0]}[]" if inner else "."
    raise unreadable_sample(
        "an object in each line, or an array of objects", finding, f"convert it: jq -c '{query}' FILE > NEW.ndjson"
    )


def _envelope(records: Sequence[str]) -> Envelope | None:
    """The envelope of the first record that reads as an event in one of the known envelopes; None if no record does."""
    for record in records[:100]:
        for envelope in _ENVELOPES:
            if isinstance(parse_object(record, RecordSpec((), (), (), "", envelope=envelope)), dict):
                return envelope
    return None


def _csv(path: Path, text: str, written: dict[str, str]) -> Sample:
    dialect, text = guess_dialect(text, path.name)
    records, _ = read_records(text, dialect.delimiter, dialect.escape, SAMPLE_ROWS + 1)
    header, records = (records[0], records[1:]) if records else ([], [])
    delimiter, escape = dialect.delimiter, dialect.escape
    whole = [record for record in records if len(record) == len(header)]
    names = without_unnamed([name.strip() for name in header]).names
    written = {**written, **({"delimiter": delimiter} if delimiter != "," else {})}
    written |= {"escape": escape} if escape else {}
    columns: dict[str, list[Cell]] = {}
    for place, name in enumerate(names):
        # a column without a name in front is a data frame's index
        if name:
            columns[name] = [(TEXT, record[place]) for record in whole]
    if columns and not whole:
        raise unreadable_sample(
            "a sample file with records", f"{path.name}, which has the names of columns alone", "name another"
        )
    return Sample("csv", len(whole), columns, written, evidence=dialect.evidence)
