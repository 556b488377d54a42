"""The figures of an installation's sources for a monitoring system, such as Prometheus. No figure has a row's value.

Figures of a source: its freshness, its rows and records, and its last run. The labels are names of sources, stages and
tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from spark_jobs.portal.overview import SourceFacts
from spark_jobs.portal.pages import Portal
from spark_jobs.storage.coordination.turns import waiting_runs
from spark_jobs.storage.descriptions.quality_tables import RUNS

CONTENT_TYPE = CONTENT_TYPE_LATEST
log = structlog.get_logger()

_OF_SOURCE = {
    "source_readable": "1 if the figures of the source could be read, else 0.",
    "source_published_time_seconds": "The end of the newest drop that is published, in seconds since 1970.",
    "source_behind_drops": "Drops that have ended and are not published, by the source's schedule.",
    "source_overdue": "1 if a drop is not published although its deadline has passed, else 0.",
    "source_landed_rows": "Rows that landed, less those that were taken back.",
    "source_late_rows": "Published rows that were late for a window.",
    "source_duplicate_rows": "Rows that came twice.",
    "source_quarantined_records": "Records in quarantine, with those that somebody has closed.",
    "source_open_records": "Records in quarantine that nobody has closed.",
    "source_missing_drops": "Drops that were never run although a later one was.",
    "source_waiting_runs": "Runs that wait for their turn on the source.",
    "source_active_runs": "1 if a run of the source is at work, else 0.",
    "run_failed": "1 if the last recorded run failed, else 0.",
    "run_end_time_seconds": "The end of the last recorded run, in seconds since 1970.",
}
"""The figures that a source has once, with their meanings."""
_OF_STAGE = "run_stage_seconds", "Seconds that each stage of the last recorded run took."
_OF_TABLE = {
    "run_written_rows": "Rows that the last recorded run wrote to a table's history.",
    "run_restated_rows": "Published rows that the last recorded run changed or removed.",
}

Figures = dict[str, float]


class _OfPortal(Collector):
    """The figures of a portal's sources, read when they are asked for."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal

    def describe(self) -> Iterable[Any]:
        """No figure before it is asked for: the registry would read the lake when the collector is added."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All figures, each with a sample for each source that has it."""
        families = {
            name: GaugeMetricFamily(f"tidemark_{name}", meaning, labels=("source",))
            for name, meaning in _OF_SOURCE.items()
        }
        stages = GaugeMetricFamily(f"tidemark_{_OF_STAGE[0]}", _OF_STAGE[1], labels=("source", "stage"))
        tables = {
            name: GaugeMetricFamily(f"tidemark_{name}", meaning, labels=("source", "table"))
            for name, meaning in _OF_TABLE.items()
        }
        with self._portal.lake.one_look():
            for name, source in sorted(self._portal.sources().items()):
                try:
                    facts = self._portal.facts(source)
                    last = self._portal.lake.newest_of_source(RUNS, name, ("outcome", "ended_at", "stages", "outputs"))
                except Exception as error:
                    # the figures of other sources are not lost with those of one
                    log.warning("figures of a source could not be read", source=name, error=str(error))
                    families["source_readable"].add_metric((name,), 0)
                    continue
                for figure, value in {**self._of_source(facts), **_of_run(last)}.items():
                    families[figure].add_metric((name,), value)
                for report in json.loads(last["stages"]) if last else ():
                    stages.add_metric((name, report["stage"]), report["seconds"])
                for table, output in (json.loads(last["outputs"]) if last else {}).items():
                    tables["run_written_rows"].add_metric((name, table), output["rows"])
                    # a record of an earlier release does not have it
                    if "restated" in output:
                        tables["run_restated_rows"].add_metric((name, table), output["restated"])
        yield from (*families.values(), stages, *tables.values())

    def _of_source(self, facts: SourceFacts) -> Figures:
        drops, freshness = facts.drops.values(), facts.freshness
        current = facts.current_run
        published = {} if facts.reached is None else {"source_published_time_seconds": facts.reached.timestamp()}
        return {
            "source_readable": 1,
            **published,
            "source_behind_drops": freshness.behind,
            "source_overdue": int(freshness.is_late),
            "source_landed_rows": sum(drop.rows for drop in drops),
            "source_late_rows": facts.late,
            "source_duplicate_rows": sum(drop.duplicates for drop in drops),
            "source_quarantined_records": facts.records,
            "source_open_records": facts.open_records,
            "source_missing_drops": len(facts.gaps),
            "source_waiting_runs": waiting_runs(self._portal.settings.home / "leases", facts.name),
            "source_active_runs": int(current is not None and current.is_at_work),
        }


def _of_run(last: dict[str, Any] | None) -> Figures:
    """The figures of the last recorded run, from its row of `quality.runs`."""
    if last is None:
        return {}
    return {"run_failed": int(last["outcome"] == "failed"), "run_end_time_seconds": last["ended_at"].timestamp()}


def openmetrics(portal: Portal, *others: Collector) -> bytes:
    """The figures of the portal's sources and those of other collectors, in the text format of OpenMetrics."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (_OfPortal(portal), *others):
        registry.register(collector)
    return generate_latest(registry)
