"""The manifest of a run: its inputs, the reports of its stages, and its outputs."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from spark_jobs.code_version import code_version
from spark_jobs.engine.hashes import bag
from spark_jobs.jobs.context import Stage
from spark_jobs.landing.ledger import COUNTS
from spark_jobs.reads.publications import publications
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.quality_tables import RUNS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FILES, LATE, STATE
from spark_jobs.storage.descriptions.times import instant, micros
from spark_jobs.threads import in_threads

_OF_FILE = ("path", "seq_no", "bytes", "checksum", "version", "landing", *COUNTS)
_OF_PUBLICATION = ("token", "known_from", "known_to")
"""The columns with the run that wrote a row and the times of its publication, which are left out of hashes."""


_code_version = functools.cache(code_version)
"""The version of the code that this process runs: it has imported it."""


def record_run(stage: Stage, stages: list[dict[str, Any]], error: Exception | None = None) -> None:
    """Record the run as it ends with this stage: published, or failed with `error`.

    A run that publishes nothing new gets no record, unless an earlier attempt of it published and did not record that.
    """
    before, tokens = stage.publication.published_us, [*stage.lease.staged.values()]
    if error is None and not stage.summary.get("moved"):
        if not _lacks_manifest(stage):
            return
        newest = publications(stage.lake, stage.source, stage.publication)[-1]
        before, tokens = micros(newest.published_before), [t for t in stage.publication.tokens if t > newest.token]
    version = json.dumps(stage.source.model_dump(mode="json", by_alias=True), sort_keys=True)
    now = stage.summary.get("published_us", stage.publication.published_us)
    row = {
        **stage.judged.run_columns,
        "outcome": "failed" if error else "published",
        "failed_stage": stage.name if error else None,
        "error_code": None if error is None else getattr(error, "code", type(error).__name__),
        "error": None if error is None else str(error),
        "started_at": datetime.fromisoformat(stages[0]["began"]) if stages else None,
        "ended_at": datetime.now(UTC),
        "source_version": hashlib.sha256(version.encode()).hexdigest()[:32],
        "definition": json.dumps(stage.source.definition_parts(), sort_keys=True),
        "code_version": _code_version(),
        "published_before": instant(before) if before > 0 else None,
        "published": instant(now) if now > 0 else None,
        "inputs": json.dumps(_inputs(stage, stages)),
        "stages": json.dumps(stages, default=str),
        "outputs": json.dumps(outputs(stage, tokens) if error is None else {}),
    }
    stage.lake.record(RUNS, [row])


def _lacks_manifest(stage: Stage) -> bool:
    """True if this run made the publication in force, and has no record of that."""
    current_publication = stage.publication
    if current_publication.run_id != stage.run_id:
        return False
    of_run = (pc.field("source") == stage.source.name) & (pc.field("run_id") == stage.run_id)
    rows = stage.lake.records(RUNS, of_run)
    return not any(
        row["outcome"] == "published" and row["published"] == instant(current_publication.published_us) for row in rows
    )


def _inputs(stage: Stage, stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The ledger's rows of the landings that the run took in, including files that it took back."""
    landings: list[int] = next((report.get("landings", []) for report in stages if report["stage"] == "land"), [])
    wanted = {*landings, *([stage.fence.token] if stage.name == "land" else [])}
    rows = stage.lake.records(FILES, pc.field("source") == stage.source.name)
    return [
        {name: row[name] for name in _OF_FILE} for row in rows if row["landing"] in wanted and row["path"] is not None
    ]


def outputs(stage: Stage, tokens: Sequence[int]) -> dict[str, dict[str, Any]]:
    """The number and a hash of the run's rows, by table; these are the rows with one of `tokens`."""
    source = {"source": [stage.source.name]}
    written: list[tuple[Table, Mapping[str, list[str]]]] = [
        *((definition.table(), {}) for definition in stage.definitions),
        (LATE, source),
        *([(STATE, source)] if stage.source.state is not None else []),
    ]
    stored = {}
    for table, partitions in written:
        columns = [column for column in table.column_names if column not in _OF_PUBLICATION]
        stored[table.qualified] = stage.lake.stored(table, columns, pc.field("token").isin(tokens), partitions)
    return dict(zip(stored, in_threads(_output, list(stored.values())), strict=True))


def _output(rows: StoredRows) -> dict[str, Any]:
    count, total = 0, 0
    for part in rows.tables():
        more, of_part = bag(part)
        count, total = count + more, (total + of_part) % (1 << 64)
    return {"rows": count, "hash": f"{total:016x}"}
