"""An erased entity in texts: results of checks, logs, reports and documents; and the search that proves it gone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from spark_jobs.config import Settings
from spark_jobs.jobs.erase_words import (
    BLACK,
    PARQUET,
    blacked_out,
    is_distinct,
    json_without,
    names_entity,
    pattern_of,
)
from spark_jobs.kernels.records.erased import Erasures
from spark_jobs.landing.worker import GZIP
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.quality_tables import OVERRIDES, RESULTS, RUNS

_SENTENCES = {RESULTS: ("observed", "expected", "because", "on_failure"), RUNS: ("error",), OVERRIDES: ("because",)}
_DOCUMENTS = {RESULTS: (), RUNS: ("inputs", "stages", "outputs"), OVERRIDES: ()}
"""By table the columns that are text for people, and those that are JSON. Names of runs, checks and tables stay."""

_DERIVED = ("reports", "quality", "plans", "audits", "sql_history", "dbt/target", "dbt/logs", "dbt/docs")
"""What Tidemark writes below its home for people, beside the logs; nothing works by it."""
_DATABASES = ("airflow", "metastore")

_LOOK = "not changed, since Tidemark works by it or it is yours; change it by hand if it is about the entity"
_RECORD = "a file of a database, whose records of runs leave with `tidemark maintain`"
_BINARY = "no text; remove the file if nothing needs it"
_COMPRESSED = "compressed; remove it if nothing needs it"


def redact_quality(lake: Lake, source: Source, entity: str, erased: Erasures, fence: Fence) -> None:
    """Take the entity out of what was recorded of checks and runs: rows of samples that are about it go, in sentences
    it is blacked out."""
    if not is_distinct(entity):
        return
    pattern = pattern_of(entity)
    for table, sentences in _SENTENCES.items():
        rows = lake.records(table, pc.field("source") == source.name)
        redacted = []
        for row in rows:
            changed = {name: blacked_out(row[name], pattern) for name in sentences if row[name]}
            documents = {name: json.loads(row[name]) for name in _DOCUMENTS[table] if row[name]}
            changed |= {name: _as_text(json_without(value, pattern)) for name, value in documents.items()}
            if row.get("sample"):
                changed["sample"] = _sample_without(row["sample"], pattern, erased)
            redacted.append({**row, **changed})
        if redacted != rows:
            lake.replace_records(table, redacted, fence)


def _as_text(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)


def _sample_without(sample: str, pattern: re.Pattern[bytes], erased: Erasures) -> str:
    """A sample without the rows that name the entity; as it was where none does."""

    def names_it(row: Any) -> bool:
        text = json.dumps(row, ensure_ascii=False)
        return pattern.search(text.encode()) is not None or erased.mentioned_in(text)

    rows = json.loads(sample)
    left = [row for row in rows if not names_it(row)]
    return sample if len(left) == len(rows) else _as_text(left)


def scrub_home(settings: Settings, entity: str) -> tuple[list[str], list[str]]:
    """Black the entity out of the texts that Tidemark has written for people; then search what else is below its home,
    but for the lake and what has landed.

    Returns the texts that had it, and what has it still, each with what to do.
    """
    if not is_distinct(entity):
        return [], [f"texts below {settings.home} were not searched: {entity!r} is too short to tell"]
    pattern, texts, left = pattern_of(entity), [], []
    for path in _files(settings):
        try:
            outcome = _scrub(settings, path, pattern, entity)
        except OSError as error:
            outcome = f"not searched: {error}"
        if outcome == "":
            texts.append(str(path))
        elif outcome:
            left.append(f"{path}: {outcome}")
    return texts, left


def _files(settings: Settings) -> Iterator[Path]:
    """The files of the home but tables and landed files, which are searched by themselves."""
    apart = {Path(place).resolve() for place in (settings.lake, settings.landing) if "://" not in str(place)}
    for folder, folders, files in os.walk(settings.home):
        folders[:] = [name for name in folders if (Path(folder) / name).resolve() not in apart]
        for name in files:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                yield path


def _scrub(settings: Settings, path: Path, pattern: re.Pattern[bytes], entity: str) -> str | None:
    """Black out the entity in a text for people; "" then. What to do if a file has it otherwise, None if it has not."""
    with path.open("rb") as file:
        start = file.read(len(PARQUET))
    if start == PARQUET or start.startswith(GZIP):
        if not names_entity(path, entity):
            return None
        return _BINARY if start == PARQUET else _COMPRESSED
    data = path.read_bytes()
    if not pattern.search(data):
        return None
    if any((settings.home / name) in path.parents for name in _DATABASES):
        return _RECORD
    if b"\0" in data[:8192]:
        return _BINARY
    if not _is_derived(settings, path):
        return _LOOK
    _black_out(path, data, pattern)
    return ""


def _is_derived(settings: Settings, path: Path) -> bool:
    places = [settings.logs_dir, *(settings.home / name for name in _DERIVED)]
    return any(place == path or place in path.parents for place in places)


def _black_out(path: Path, data: bytes, pattern: re.Pattern[bytes]) -> None:
    """In a document of JSON within its texts; else letter for letter in its place, as the file may be open."""
    if path.suffix == ".json":
        try:
            document = json.loads(data)
        except ValueError:
            pass  # a log that is called so, or a document that was cut
        else:
            path.write_text(_as_text(json_without(document, pattern)), encoding="utf-8")
            return
    with path.open("r+b") as file:
        for word in pattern.finditer(data):
            file.seek(word.start())
            file.write(BLACK * len(word[0]))
