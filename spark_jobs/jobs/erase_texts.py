"""An erased entity in texts: results of checks, logs, reports and documents; and the search that proves it gone.

Texts are compared as words: an entity `N1` is not found in `N14EH`. One of fewer letters than `SHORTEST` is looked for
in tables alone, since half of every log would be blacked out for it.
"""

from __future__ import annotations

import gzip
import html
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import source_tables
from spark_jobs.kernels.records.erased import Erasures
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.quality_tables import OVERRIDES, RESULTS, RUNS
from spark_jobs.storage.schema import Table
from spark_jobs.storage.shown_marts import shown_marts, staged

SHORTEST = 3
"""Letters of an entity that is looked for in texts."""
BLACK = b"*"
_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"
_WORD = r"[A-Za-z0-9_]"


def redact_quality(lake: Lake, source: Source, entity: str, erased: Erasures, fence: Fence) -> None:
    """Take the entity out of what was recorded of checks and runs: rows of samples that are about it go, in sentences
    it is blacked out."""
    if len(entity) < SHORTEST:
        return
    for table in (RESULTS, RUNS, OVERRIDES):
        rows = lake.records(table, pc.field("source") == source.name)
        redacted = [_redacted(row, entity, erased) for row in rows]
        if redacted != rows:
            lake.replace_records(table, redacted, fence)


def _redacted(row: dict[str, Any], entity: str, erased: Erasures) -> dict[str, Any]:
    pattern = _pattern(entity)
    texts = {name: text for name, text in row.items() if isinstance(text, str) and pattern.search(text.encode())}
    changed = {name: pattern.sub(_blackened, text.encode()).decode() for name, text in texts.items()}
    if "sample" in texts:
        sample = [one for one in json.loads(texts["sample"]) if not _mentions(one, entity, erased)]
        changed["sample"] = json.dumps(sample, ensure_ascii=False)
    return {**row, **changed}


def _mentions(value: Any, entity: str, erased: Erasures) -> bool:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _pattern(entity).search(text.encode()) is not None or erased.mentioned_in(text)


def _pattern(entity: str) -> re.Pattern[bytes]:
    """The entity as it stands in texts, JSON, HTML and addresses, as a whole word."""
    forms = {entity, json.dumps(entity)[1:-1], json.dumps(entity, ensure_ascii=False)[1:-1], html.escape(entity)}
    forms |= {quote(entity), quote(entity, safe="")}
    listed = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return re.compile(f"(?<!{_WORD})(?:{listed})(?!{_WORD})".encode())


def _blackened(found: re.Match[bytes]) -> bytes:
    return BLACK * len(found[0])


def names_entity(path: Path, entity: str) -> bool:
    """Whether a landed file has the entity, as a word of its text or in a column of Parquet."""
    if path.suffix == ".parquet":
        return _in_parquet(path, entity)
    pattern = _pattern(entity)
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as file:
            return _in_blocks(iter(lambda: file.read(_BLOCK), b""), pattern, len(entity))
    except (OSError, EOFError):
        return False


def _in_blocks(blocks: Iterator[bytes], pattern: re.Pattern[bytes], width: int) -> bool:
    before = b""
    for block in blocks:
        text = before + block
        if pattern.search(text):
            return True
        before = text[-8 * width - 2 :]
    return False


def _in_parquet(path: Path, entity: str) -> bool:
    try:
        for batch in pq.ParquetFile(path).iter_batches():
            if any(_in_column(column, entity) for column in batch.columns):
                return True
    except (pa.ArrowException, OSError):
        return False
    return False


def _in_column(column: pa.Array, entity: str) -> bool:
    """Whether texts of a column, however deep in lists, maps and structs, have the entity."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _in_column(column.dictionary, entity)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _in_column(column.flatten(), entity)
    if pa.types.is_map(kind):
        return _in_column(column.keys, entity) or _in_column(column.items, entity)
    if pa.types.is_struct(kind):
        return any(_in_column(part, entity) for part in column.flatten())
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return False
    if len(entity) < SHORTEST:
        return bool(pc.any(pc.equal(column, entity)).as_py())
    near = column.filter(pc.fill_null(pc.match_substring(column, entity), False))
    pattern = _pattern(entity)
    return any(pattern.search(text.encode()) for text in near.to_pylist())


def scrub_home(settings: Settings, lake: Lake, source: Source, entity: str) -> tuple[list[str], list[str]]:
    """Black the entity out of Tidemark's own texts; then search everything that is left of it.

    Returns the texts that had it, and what has it still, each with what to do.
    """
    left = [f"{path}: {_RESTORED}" for path in _in_tables(settings, lake, source, entity)]
    if len(entity) < SHORTEST:
        return [], [*left, f"texts below {settings.home} were not searched: {entity!r} is too short to tell"]
    pattern, texts = _pattern(entity), []
    for path in _files(settings):
        try:
            outcome = _blacken(path, pattern, entity)
        except OSError as error:
            outcome = f"not searched: {error}"
        if outcome is None:
            continue
        if outcome:
            left.append(f"{path}: {outcome}")
        else:
            texts.append(str(path))
    return texts, left


_RESTORED = "erase once more; if it stays, another column than the entity's has it"
_BINARY = "no text; remove the file if nothing needs it"


def _files(settings: Settings) -> Iterator[Path]:
    """The files of the home but tables and landed files, which are searched by themselves."""
    apart = {Path(place).resolve() for place in (settings.lake, settings.landing) if "://" not in str(place)}
    for folder, folders, files in os.walk(settings.home):
        folders[:] = [name for name in folders if (Path(folder) / name).resolve() not in apart]
        for name in files:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                yield path


def _blacken(path: Path, pattern: re.Pattern[bytes], entity: str) -> str | None:
    """Black out the entity in a text, letter for letter, as it may be open; "" then. What it is if it has the entity
    and is no text; None if it has not."""
    if path.suffix == ".parquet":
        return _BINARY if _in_parquet(path, entity) else None
    data = path.read_bytes()
    if data.startswith(_GZIP):
        return "compressed; remove it if nothing needs it" if names_entity(path, entity) else None
    if not pattern.search(data):
        return None
    if b"\0" in data[:8192]:
        return _BINARY
    with path.open("r+b") as file:
        for found in pattern.finditer(data):
            file.seek(found.start())
            file.write(_blackened(found))
    return ""


def _in_tables(settings: Settings, lake: Lake, source: Source, entity: str) -> Iterator[str]:
    """Files of the source's tables, their logs included, that have the entity."""
    pattern = _pattern(entity)
    for table in _tables(settings, lake, source):
        root = Path(lake.uri(table))
        if "://" in lake.uri(table) or not root.is_dir():
            continue
        for path in sorted(root.rglob("*")):
            of_others = "source" in table.partitions and path.suffix == ".parquet" and not _is_of(path, source)
            if not path.is_file() or (of_others and "_delta_log" not in path.parts):
                continue
            has = _in_parquet(path, entity) if path.suffix == ".parquet" else _in_log(path, pattern, entity)
            if has:
                yield str(path)


def _is_of(path: Path, source: Source) -> bool:
    return f"source={quote(source.name)}" in path.parts


def _in_log(path: Path, pattern: re.Pattern[bytes], entity: str) -> bool:
    return len(entity) >= SHORTEST and pattern.search(path.read_bytes()) is not None


def _tables(settings: Settings, lake: Lake, source: Source) -> Sequence[Table]:
    marts = [staged(mart) for mart in shown_marts(settings.home, source.name).versions]
    return [table for table in [*source_tables(source), *marts] if lake.is_stored(table.database, table.table)]
