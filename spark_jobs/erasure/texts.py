"""The removal of an erased value from texts: results of checks, logs, reports and documents; and a search for the rest
of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from spark_jobs.config import Settings
from spark_jobs.engine.records import Erasures
from spark_jobs.erasure.words import (
    BLACK,
    PARQUET,
    blacked_out,
    is_distinct,
    json_without,
    names_value,
    pattern_of,
)
from spark_jobs.landing.worker import GZIP
from spark_jobs.sources import Source
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.quality_tables import METRICS, OVERRIDES, RESULTS, RUNS
from spark_jobs.storage.lakes.spark_lake import SparkLake

_SENTENCES = {RESULTS: ("observed", "expected", "because", "on_failure"), RUNS: ("error",), OVERRIDES: ("because",)}
_DOCUMENTS = {RESULTS: (), RUNS: ("inputs", "stages", "outputs"), OVERRIDES: ()}
"""The columns with sentences for people (`_SENTENCES`) and those with JSON (`_DOCUMENTS`), by table. Names of runs,
checks and tables stay."""

_DERIVED = ("reports", "quality", "plans", "audits", "sql_history", "dbt/target", "dbt/logs", "dbt/docs")
"""Files and folders below Tidemark's home that it writes for people, beside the logs; no code depends on them."""
_DATABASES = ("airflow", "metastore")

_LOOK = "not changed, since Tidemark works by it or it is yours; change it by hand if it is about the value"
_RECORD = "a file of a database, whose records of runs leave with `tidemark maintain`"
_BINARY = "no text; remove the file if nothing needs it"
_COMPRESSED = "compressed; remove it if nothing needs it"


def redact_quality(lake: SparkLake, source: Source, value: str, erased: Erasures, fence: Fence) -> None:
    """Remove the value from the records of checks, runs, overrides and rates.

    The rate of an entity of this name is removed. Rows of samples that name the value are removed; in sentences and
    documents it is blacked out, but not if it is too short to tell (`is_distinct`).
    """
    _redact_rates(lake, source, value, fence)
    if not is_distinct(value):
        return
    pattern = pattern_of(value)
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


def _redact_rates(lake: SparkLake, source: Source, value: str, fence: Fence) -> None:
    """Remove the rates of entities whose name is the value, or has it if it is distinct, from `quality.metrics`."""
    rows = lake.records(METRICS, pc.field("source") == source.name)
    pattern = pattern_of(value) if is_distinct(value) else None

    def names_it(entity: str) -> bool:
        return entity == value or (pattern is not None and pattern.search(entity.encode()) is not None)

    redacted = []
    for row in rows:
        rates = json.loads(row.get("busiest") or "{}")
        left = {entity: rate for entity, rate in rates.items() if not names_it(entity)}
        redacted.append(row if left == rates else {**row, "busiest": _as_text(left)})
    if redacted != rows:
        lake.replace_records(METRICS, redacted, fence)


def _as_text(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)


def _sample_without(sample: str, pattern: re.Pattern[bytes], erased: Erasures) -> str:
    """A sample without the rows that name the value; the same text if there are none."""

    def names_it(row: Any) -> bool:
        text = json.dumps(row, ensure_ascii=False)
        return pattern.search(text.encode()) is not None or erased.mentioned_in(text)

    rows = json.loads(sample)
    left = [row for row in rows if not names_it(row)]
    return sample if len(left) == len(rows) else _as_text(left)


def scrub_home(settings: Settings, value: str) -> tuple[list[str], list[str]]:
    """Black the value out of the texts that Tidemark has written for people, and search all other files of its home.

    The lake and the landing directory are not searched. Returns the paths of texts in which it was blacked out, and a
    line for each file that still has it, with what to do.
    """
    if not is_distinct(value):
        return [], [f"texts below {settings.home} were not searched: {value!r} is too short to tell"]
    pattern, texts, left = pattern_of(value), [], []
    for path in _files(settings):
        try:
            outcome = _scrub(settings, path, pattern, value)
        except OSError as error:
            outcome = f"not searched: {error}"
        if outcome == "":
            texts.append(str(path))
        elif outcome:
            left.append(f"{path}: {outcome}")
    return texts, left


def _files(settings: Settings) -> Iterator[Path]:
    """The files below the home, without tables and landed files, which are searched by themselves."""
    apart = {Path(place).resolve() for place in (settings.lake, settings.landing) if "://" not in str(place)}
    for folder, folders, files in os.walk(settings.home):
        folders[:] = [name for name in folders if (Path(folder) / name).resolve() not in apart]
        for name in files:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                yield path


def _scrub(settings: Settings, path: Path, pattern: re.Pattern[bytes], value: str) -> str | None:
    """Black out the value if the file is a text for people that has it; returns "" then.

    Returns what to do about any other file that has the value, and None for a file that does not have it.
    """
    with path.open("rb") as file:
        start = file.read(len(PARQUET))
        file.seek(0)
        if start == PARQUET or start.startswith(GZIP):
            if not names_value(file, value):
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
    """Black out the value in a file.

    A JSON document is written anew with its texts changed. In any other file the letters are overwritten in place,
    since a process may have it open.
    """
    if path.suffix == ".json":
        try:
            document = json.loads(data)
        except ValueError:
            pass  # a log with such a name, or a document that was cut off
        else:
            path.write_text(_as_text(json_without(document, pattern)), encoding="utf-8")
            return
    with path.open("r+b") as file:
        for word in pattern.finditer(data):
            file.seek(word.start())
            file.write(BLACK * len(word[0]))
