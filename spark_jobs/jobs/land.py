"""Land: the drops' files become chunks, rejects and duplicates; the ledger's commit makes them count."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import ParameterError
from spark_jobs.gates.measures import bronze as measure_bronze
from spark_jobs.jobs.base import Base, base_of
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.gates import pass_gate
from spark_jobs.jobs.names import names_follow
from spark_jobs.kernels.chunks.config import BatcherConfig
from spark_jobs.landing import ledger
from spark_jobs.landing.chunking import as_chunks
from spark_jobs.landing.duplicates import Resolved, resolve
from spark_jobs.landing.reader import LandingFile, list_drop_files, read_files
from spark_jobs.restatement.catalog import ensure_source, widen_tables
from spark_jobs.restatement.versions import check_version, version
from spark_jobs.sources import load_sources
from spark_jobs.storage.dense_files import page_rows
from spark_jobs.storage.tables import DUPLICATES, QUARANTINE, chunks
from spark_jobs.trace.horizon import check_drops

NOTHING = {"rows": 0, "rejects": 0, "duplicates": 0}


def land(stage: Stage) -> None:
    """Land the interval's files, then hold them against the bronze gate."""
    land_files(stage)
    if not stage.publication.definition:
        names_follow(stage, version(stage.source))
    _pass_gate(stage)


def land_files(stage: Stage) -> None:
    """Land every file of the interval's drops that is not in the ledger with the same bytes."""
    ensure_source(stage.lake, stage.source, load_sources(stage.settings.sources).values())
    check_drops(stage.source, stage.frontiers, stage.drops)
    files = listed_files(stage)
    if stage.planned is not None:
        stage.planned.check(base_of_run(stage, files), stage.source)
    if check_version(stage.source, stage.publication, accepted=stage.accept_definition):
        widen_tables(stage.lake, stage.source)
    known = ledger.known(stage.lake, stage.source, stage.drops, stage.frontiers.landed_through)
    fresh = ledger.fresh_files(stage.source, files, known.files)
    with_files = {f.seq_no for f in files}
    empty = [n for n in stage.drops if n not in with_files and not stage.frontiers.has_landed(range(n, n + 1))]
    labels = [stage.source.drops.label(n) for n in empty]
    stage.summary.update(
        files=len(fresh), rows=0, rejects=0, duplicates=0, known_files=len(files) - len(fresh), empty_drops=labels
    )
    rows = [ledger.empty_drop_row(stage.source, n, landing=stage.fence.token, run_id=stage.run_id) for n in empty]
    if fresh:
        rows += _write(stage, fresh)
    if rows:
        ledger.write(stage.lake, rows, stage.fence)


def listed_files(stage: Stage) -> list[LandingFile]:
    """The files of the interval's drops; only the one that the run is about, if it is about one.

    Raises:
        ParameterError: that one is not there.
    """
    files = [f for seq_no in stage.drops for f in list_drop_files(stage.settings.landing, stage.source, seq_no)]
    if stage.only_file is None:
        return files
    chosen = [f for f in files if f.path == stage.only_file]
    if not chosen:
        raise ParameterError(
            expected=f"a file of the drops of {stage.source.name}, relative to the landing directory",
            found=repr(stage.only_file),
            consequence="nothing was run",
            next_step=f"name one of {', '.join(f.path for f in files[:5]) or 'none'}",
        )
    return chosen


def base_of_run(stage: Stage, files: list[LandingFile]) -> Base:
    """What this run is made on; a plan of it was made on the same, or is stale."""
    interval = (stage.lo_us, stage.hi_us)
    return base_of(stage.source, interval, files, stage.frontiers, stage.publication, stage.only_file)


def _pass_gate(stage: Stage) -> None:
    """Measure every landing that is not in the trace yet, so that a repeated run meets a failed gate again."""
    landings = ledger.pending_landings(stage.lake, stage.source, stage.frontiers.landed_through)
    if landings:
        pass_gate(stage, "bronze", measure_bronze(stage.lake.spark, stage.source, landings=list(landings)))


def _write(stage: Stage, files: list[LandingFile]) -> list[dict[str, Any]]:
    """Write chunks, rejects and duplicates of these files; returns their ledger rows."""
    token = stage.fence.token
    read = read_files(stage.lake.spark, stage.source, files).persist()
    try:
        resolved = resolve(stage.lake, stage.source, read)
        counts = _counts(resolved)
        total = {name: sum(c[name] for c in counts.values()) for name in NOTHING}
        stage.summary.update(total)
        landing = {
            "source": F.lit(stage.source.name),
            "landing": F.lit(token).cast("bigint"),
            "run_id": F.lit(stage.run_id),
        }
        if total["rows"]:
            made = as_chunks(resolved.counted, stage.source, token, BatcherConfig.landing())
            in_page = page_rows(total["rows"], max(c["entities"] for c in counts.values()))
            stage.lake.append_dense(chunks(stage.source), made, stage.fence, in_page)
        if total["rejects"]:
            rejects = read.where("rule IS NOT NULL").withColumns(landing).coalesce(1)
            stage.lake.append(QUARANTINE, rejects, stage.fence)
        if total["duplicates"]:
            stage.lake.append(DUPLICATES, resolved.duplicates.withColumns(landing).coalesce(1), stage.fence)
    finally:
        read.unpersist()
    return [
        ledger.ledger_row(
            stage.source, file, counts.get((file.seq_no, file.rank), NOTHING), landing=token, run_id=stage.run_id
        )
        for file in files
    ]


def _counts(resolved: Resolved) -> dict[tuple[int, int], dict[str, int]]:
    """Per (drop, file rank): rows that count, rejects, duplicates, and about how many entities."""
    found: dict[tuple[int, int], dict[str, int]] = {}
    counted = resolved.all.groupBy("seq_no", "file_rank").agg(
        F.count_if(F.expr("rule IS NULL AND counted_row_id IS NULL")).alias("rows"),
        F.count_if(F.expr("rule IS NOT NULL")).alias("rejects"),
        F.count_if(F.expr("rule IS NULL AND counted_row_id IS NOT NULL")).alias("duplicates"),
        F.approx_count_distinct("entity").alias("entities"),
    )
    names = (*NOTHING, "entities")
    for row in counted.collect():
        found[(row.seq_no, row.file_rank)] = {name: row[name] for name in names}
    return found
