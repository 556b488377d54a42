"""The checks of runs, read from the table of results without Spark."""

from __future__ import annotations

import pyarrow.compute as pc

from spark_jobs.storage.descriptions.quality_tables import RESULTS
from spark_jobs.storage.lakes.stored_lake import StoredLake


def warned_checks(place: str, source: str, run_id: str) -> list[str]:
    """The checks of a run that did not hold and let it go on, each with the observed value; `place` is the lake's
    root."""
    of_run = (pc.field("source") == source) & (pc.field("run_id") == run_id)
    newest: dict[tuple[str, str], dict[str, str]] = {}
    for row in sorted(StoredLake(place).records(RESULTS, of_run), key=lambda row: row["token"]):
        newest[row["gate"], row["name"]] = row
    return [f"{row['name']} ({row['observed']})" for row in newest.values() if row["verdict"] == "warned"]
