"""The audit of a source: compares all landed and published rows with other records of them.

These are the ledger of the files, a sample of the files themselves, and rows computed anew from the trace. The audit
changes nothing but its own results.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from expectations import AUDIT, SUITES
from spark_jobs.audit.bronze import BronzeAudit
from spark_jobs.audit.examination import examine_source
from spark_jobs.audit.history import MOST_DIFFERENCES, broken_histories, unlisted_late_rows
from spark_jobs.audit.tables import audited_tables
from spark_jobs.audit.versions import versions_otherwise
from spark_jobs.config import Settings
from spark_jobs.definitions.definition import definitions
from spark_jobs.definitions.versions import check_version
from spark_jobs.engine.deltas import DuplicateDeltaError
from spark_jobs.gates import Verdict, build_data_docs, judge_gate
from spark_jobs.gates.frames import published_rows
from spark_jobs.gates.verdicts import MAX_EXAMPLES
from spark_jobs.jobs.in_force import in_force
from spark_jobs.judging.gate import as_json
from spark_jobs.model import ReportStep, report_nothing
from spark_jobs.restatement.chains import chain_corrections
from spark_jobs.restatement.reach import touched_ranges
from spark_jobs.restatement.states import state_corrections
from spark_jobs.restatement.touched import Scope
from spark_jobs.restatement.windows import corrections
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import leases, publication
from spark_jobs.storage.coordination.audit_notes import note_audit
from spark_jobs.storage.coordination.source_changes import check_unchanging
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.quality_tables import RESULTS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import LATE, STATE
from spark_jobs.storage.descriptions.times import utc_rows
from spark_jobs.storage.lakes.lake import FrameLake, Lake
from spark_jobs.storage.lakes.overlay import OverlayLake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import frontiers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Examples = dict[str, list[dict[str, Any]]]


@dataclass
class Audited:
    """The result of an audit: its id, a verdict for each invariant, and its duration.

    `since` is the label of the first drop whose files it looked at.
    """

    source: str
    run_id: str
    since: str
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def failed(self) -> list[Verdict]:
        """The verdicts of the invariants that do not hold."""
        return [verdict for verdict in self.verdicts if verdict.stops]


def audit(
    settings: Settings,
    source: Source,
    spark: SparkSession,
    *,
    since: int = 0,
    report_step: ReportStep = report_nothing,
) -> Audited:
    """Audit a source, and of its files those of drops from number `since` on. No run can change the source meanwhile.

    The verdicts are written to `quality.results`, with the gate `audit`. `report_step` is called with the steps.

    Raises:
        SourceBusy: a stage was at work for too long.
        SourceChangeUnfinished: the source is being renamed, dropped or reset.
        DefinitionChanged: the source file has changed and no run has accepted it, so published rows do not follow it.
    """
    start_s = time.monotonic()
    lake = SparkLake(spark)
    audited = Audited(source.name, f"audit-{uuid.uuid4().hex[:12]}", source.drops.label(since))
    with leases.hold_still(settings.home / "leases", source=source.name) as lease:
        check_unchanging(lake, source.name)
        token = lease.fence.token
        measures, examples = _measure(settings, lake, source, since, report_step)
        audited.verdicts = _judge(settings, audited, measures, examples)
        _record(lake, source, audited, token)
    build_data_docs(settings)
    audited.seconds = round(time.monotonic() - start_s, 3)
    note_audit(settings.home, source.name, audited.run_id, len(audited.failed))
    return audited


def _judge(settings: Settings, audited: Audited, measures: dict[str, int], examples: Examples) -> list[Verdict]:
    """A verdict for each invariant that was measured; if the records contradict each other, the others were not."""
    verdicts = judge_gate(
        AUDIT,
        measures,
        settings=settings,
        source=audited.source,
        run_id=audited.run_id,
        find_examples=lambda broken: {name: examples.get(name, []) for name, *_ in broken},
    )
    named = []
    for verdict in verdicts:
        if verdict.name not in measures and measures["records_at_odds"]:
            continue
        tables = sorted({str(row["table"]) for row in verdict.sample if row.get("table")})
        named.append(replace(verdict, relation=", ".join(tables) or None))
    return named


def _measure(
    settings: Settings, lake: FrameLake, source: Source, since: int, report_step: ReportStep
) -> tuple[dict[str, int], Examples]:
    report_step("records")
    findings = [finding for finding in examine_source(settings, source) if finding.verdict == "wrong"]
    measures: dict[str, int] = {"records_at_odds": len(findings)}
    examples: Examples = {"records_at_odds": [{"table": f.what, "found": f.found, "do": f.do} for f in findings]}
    if findings:
        return measures, examples
    _, now = in_force(lake, source, compares=False)
    check_version(source, now, accepted=False, consequence="nothing was judged")
    if now.published_us == 0:
        return {**measures, **dict.fromkeys(_all_measures(), 0)}, examples
    report_step("files of tables")
    for measure, rows in audited_tables(lake, source, now).items():
        measures[measure], examples[measure] = len(rows), rows[:MAX_EXAMPLES]
    report_step("landed rows and the trace")
    in_bronze, of_bronze = BronzeAudit.of(settings, lake, source, since).measure()
    report_step("published rows, computed anew")
    published, of_published = _measure_published(lake, source, now)
    return measures | in_bronze | published, examples | of_bronze | of_published


def _all_measures() -> list[str]:
    return [invariant.measure for invariant in SUITES[AUDIT]]


_OF_PUBLISHED = (
    "windows_otherwise",
    "repeated_windows",
    "states_otherwise",
    "versions_otherwise",
    "repeated_entities",
    "broken_histories",
    "unlisted_late_rows",
)


class _Anew(Scope):
    """The scope of all published rows, worked out once more."""

    @property
    def known_from_us(self) -> int:
        """A time later than that of any published row, so that none is taken for a row of this audit."""
        return self.frontiers.seal_us


def _measure_published(
    lake: FrameLake, source: Source, now: publication.Publication
) -> tuple[dict[str, int], Examples]:
    """The measures of published tables, with examples: the tables compared with rows computed anew from the trace."""
    scope = _Anew(source, frontiers.published_frontiers(lake, source, now), now, everything=True)
    counts = Counter[str](dict.fromkeys(_OF_PUBLISHED, 0))
    examples: Examples = {}

    def tell(measure: str, table: str, rows: list[dict[str, Any]], count: int) -> None:
        counts[measure] += count
        examples_of_measure = examples.setdefault(measure, [])
        examples_of_measure += [{"table": table, **row} for row in rows[: MAX_EXAMPLES - len(examples_of_measure)]]

    # the rows that are worked out anew are kept beside the tables
    overlay = OverlayLake(lake)
    try:
        # only a table whose published windows are each there once can be compared
        comparable = []
        for definition in definitions(source):
            twice = _repeated_identities(lake, definition.table(), definition.identity, now, {})
            tell("repeated_windows", definition.table().qualified, twice, len(twice))
            if not twice:
                comparable.append(definition)
        broken = broken_histories(lake, source, definitions(source), now)
        tell("broken_histories", "", broken, len(broken))
        corrected = corrections(overlay, scope, comparable, touched_ranges(lake, scope, comparable), 0)
        unlisted = unlisted_late_rows(overlay, scope, definitions(source))
        tell("unlisted_late_rows", LATE.qualified, unlisted, len(unlisted))
        for definition in comparable:
            table = definition.table()
            if definition.name in corrected:
                overlay.append_files(table, corrected[definition.name].files)
            rows = _some(overlay, table, [column.name for column in definition.value_columns()])
            tell("windows_otherwise", table.qualified, rows, len(rows))
        if source.state is not None:
            twice = _repeated_identities(lake, STATE, ["entity"], now, {"source": [source.name]})
            tell("repeated_entities", STATE.qualified, twice, len(twice))
            rows = _otherwise_states(overlay, scope)
            tell("states_otherwise", STATE.qualified, rows, len(rows))
            if source.keeps_chains and overlay.wrote(CHAINS):
                rows = versions_otherwise(lake, scope, overlay.written_rows(CHAINS))
                tell("versions_otherwise", CHAINS.qualified, rows, len(rows))
    finally:
        overlay.close()
    return dict(counts), examples


def _otherwise_states(overlay: OverlayLake, scope: Scope) -> list[dict[str, Any]]:
    try:
        _work_out_states(overlay, scope)
    except DuplicateDeltaError as error:
        # no state can be computed if the trace has a row twice
        return [{"row_id": error.facts["row_id"], "found": error.found}]
    return _some(overlay, STATE, ["entity", "timestamp", "at_delta", "delta_count", "ints", "floats"])


def _work_out_states(overlay: OverlayLake, scope: Scope) -> None:
    if not scope.source.keeps_chains:
        overlay.append_files(STATE, state_corrections(overlay, scope, 0) or [])
        return
    corrected = chain_corrections(overlay, scope, 0)
    if corrected is not None:
        overlay.append_files(STATE, corrected.states)
        overlay.append_files(CHAINS, corrected.segments)


def _some(overlay: OverlayLake, table: Table, columns: list[str]) -> list[dict[str, Any]]:
    """The rows that would have to be written to put a table right, at most `MOST_DIFFERENCES`.

    The era is `live` for a row that the table lacks, `closing` for a row that it should not have. States are written
    without a comparison: a state with rows of both eras has not changed, and is left out.
    """
    if not overlay.wrote(table):
        return []
    eras = [F.min("era").alias("era"), F.max("era").alias("other")]
    rows = overlay.written_rows(table).groupBy(*columns).agg(*eras).where("era = other").drop("other")
    return [dict(row) for row in utc_rows(rows.limit(MOST_DIFFERENCES))]


def _repeated_identities(
    lake: Lake, table: Table, identity: list[str], now: publication.Publication, of: dict[str, list[str]]
) -> list[dict[str, Any]]:
    """The identities that a published history table has more than once, each with its count."""
    published, _ = published_rows(lake, table, identity, identity, now, -1, of)
    counted = published.group_by(list(identity), use_threads=False).aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted["count_all"], 1))
    return list(twice.slice(0, MOST_DIFFERENCES).to_pylist())


def _record(lake: Lake, source: Source, audited: Audited, token: int) -> None:
    common = {"source": source.name, "token": token, "run_id": audited.run_id, "recorded_at": datetime.now(UTC)}
    rows = [{**common, **asdict(v), "sample": as_json(v.sample)} for v in audited.verdicts]
    # no run may have widened the table since an older version made it
    lake.catalog.widen([RESULTS])
    lake.record(RESULTS, rows)
