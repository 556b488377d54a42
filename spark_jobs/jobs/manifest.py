"""The manifest of a run: its inputs, the reports of its stages, and its outputs."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from spark_jobs.code_version import code_version
from spark_jobs.definitions.definition import definitions
from spark_jobs.engine.hashes import bag
from spark_jobs.engine.restatement import CLOSING
from spark_jobs.judging.gate import JudgedRun
from spark_jobs.landing.ledger import COUNTS
from spark_jobs.model import FIRST, Report
from spark_jobs.reads.publications import publications
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.quality_tables import RUNS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FILES, LATE, STATE
from spark_jobs.storage.descriptions.times import instant, micros
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.threads import in_threads

_OF_FILE = ("path", "seq_no", "bytes", "checksum", "version", "landing", *COUNTS)
_OF_PUBLICATION = ("token", "known_from", "known_to")
"""The columns with the run that wrote a row and the times of its publication, which are left out of hashes."""


_code_version = functools.cache(code_version)
"""The version of the code that this process runs: it has imported it."""


def record_publication(
    lake: Lake, run: JudgedRun, stages: Sequence[Report], before: Publication, published_us: int, *, moved: bool
) -> dict[str, dict[str, Any]]:
    """Record that the run has published up to `published_us`; `before` is the publication in force before that.

    Returns what `_outputs` counts of each table. A run that publishes nothing new (it has not `moved` the publication)
    gets no record and returns no counts, unless an earlier attempt of it published and did not record that.
    """
    before_us, tokens = before.published_us, [*run.lease.staged.values()]
    if not moved:
        if not _lacks_manifest(lake, run, before):
            return {}
        newest = publications(lake, run.source, before)[-1]
        before_us, tokens = micros(newest.published_before), [t for t in before.tokens if t > newest.token]
    inputs, outputs = _inputs(lake, run.source, _landings(stages)), _outputs(lake, run.source, tokens)
    _record(lake, run, stages, before_us, published_us, {"outcome": "published", "inputs": inputs, "outputs": outputs})
    return outputs


def record_failure(
    lake: Lake, run: JudgedRun, stages: Sequence[Report], before: Publication, name: str, error: Exception
) -> None:
    """Record that the run has failed with `error` in the stage `name`, which began with the publication `before`.

    The stage `publish` may fail after it has published.
    """
    published_us = publication.load(lake, run.source).published_us
    landings = _landings(stages) | ({run.token} if name == FIRST else set())
    error_code = getattr(error, "code", type(error).__name__)
    failure = {"outcome": "failed", "failed_stage": name, "error_code": error_code, "error": str(error)}
    inputs = _inputs(lake, run.source, landings)
    _record(lake, run, stages, before.published_us, published_us, {**failure, "inputs": inputs, "outputs": {}})


def _record(
    lake: Lake, run: JudgedRun, stages: Sequence[Report], before_us: int, published_us: int, outcome: Report
) -> None:
    """Record the run as `quality.runs` has it; `outcome` has the columns that depend on how it ended."""
    version = json.dumps(run.source.model_dump(mode="json", by_alias=True), sort_keys=True)
    row = {
        **run.columns,
        "failed_stage": None,
        "error_code": None,
        "error": None,
        "started_at": datetime.fromisoformat(stages[0]["began"]) if stages else None,
        "ended_at": datetime.now(UTC),
        "source_version": hashlib.sha256(version.encode()).hexdigest()[:32],
        "definition": json.dumps(run.source.definition_parts(), sort_keys=True),
        "code_version": _code_version(),
        "published_before": instant(before_us) if before_us > 0 else None,
        "published": instant(published_us) if published_us > 0 else None,
        "stages": json.dumps(stages, default=str),
        **outcome,
    }
    lake.record(RUNS, [{**row, "inputs": json.dumps(row["inputs"]), "outputs": json.dumps(row["outputs"])}])


def _lacks_manifest(lake: Lake, run: JudgedRun, newest: Publication) -> bool:
    """True if this run made the publication in force, `newest`, and has no record of that."""
    if newest.run_id != run.run_id:
        return False
    of_run = (pc.field("source") == run.source.name) & (pc.field("run_id") == run.run_id)
    rows = lake.records(RUNS, of_run)
    return not any(row["outcome"] == "published" and row["published"] == instant(newest.published_us) for row in rows)


def _landings(stages: Sequence[Report]) -> set[int]:
    """The landings that the run took in, by the report of its stage `land`."""
    return {landing for report in stages if report["stage"] == FIRST for landing in report.get("landings", [])}


def _inputs(lake: Lake, source: Source, landings: Collection[int]) -> list[dict[str, Any]]:
    """The ledger's rows of these landings, including files that were taken back."""
    rows = lake.records(FILES, pc.field("source") == source.name)
    return [
        {name: row[name] for name in _OF_FILE} for row in rows if row["landing"] in landings and row["path"] is not None
    ]


def _outputs(lake: Lake, source: Source, tokens: Sequence[int]) -> dict[str, dict[str, Any]]:
    """The number and a hash of the run's rows, by table; these are the rows with one of `tokens`.

    `restated`: the number of published rows that the run changed or removed.
    """
    of_source = {"source": [source.name]}
    written: list[tuple[Table, Mapping[str, list[str]]]] = [
        *((definition.table(), {}) for definition in definitions(source)),
        (LATE, of_source),
        *([(STATE, of_source)] if source.state is not None else []),
    ]
    stored = {}
    for table, partitions in written:
        columns = [column for column in table.column_names if column not in _OF_PUBLICATION]
        stored[table.qualified] = lake.stored(table, columns, pc.field("token").isin(tokens), partitions)
    return dict(zip(stored, in_threads(_output, list(stored.values())), strict=True))


def _output(rows: StoredRows) -> dict[str, Any]:
    count, total, restated = 0, 0, 0
    for part in rows.tables():
        more, of_part = bag(part)
        count, total = count + more, (total + of_part) % (1 << 64)
        if "era" in part.column_names:
            restated += pc.sum(pc.equal(part["era"], CLOSING)).as_py() or 0
    return {"rows": count, "restated": restated, "hash": f"{total:016x}"}
