"""A file that breaks a rule in every line: the first rejects are kept, the others counted, and none of them lost."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.plans.replay import Asked, dismiss, quarantined_records, reasons, replay_of, summary
from spark_jobs.sources import Source, load_source
from tests.jobs.harness import SOURCE, Reading, path_of, run, write_source

pytestmark = [pytest.mark.spark, pytest.mark.turns]

LINES = 100_000


def test_a_flood_of_rejects_is_kept_as_a_range_until_it_can_be_read(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    few = SOURCE.replace("landing: {", "landing: {max_rejects: 20, ")
    assert few != SOURCE
    home = write_source(home, few)
    readings = [Reading(0, 10, "a", n) for n in range(2)]
    lines = [readings[0].line(), *["x"] * LINES, readings[1].line(), *["y"] * LINES]
    file = home.landing_folder / path_of(0)
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress("\n".join(lines).encode()))

    def landed(**options: Any) -> dict[str, int]:
        stage = run(lake, home, 0, 0, **options)[0]  # the gates compare quarantine with the ledger
        return {name: stage[name] for name in ("rows", "rejects", "rejects_back")}

    def source() -> Source:
        return load_source(home.sources / "meters.yml")

    def kept() -> list[tuple[int, int | None, int, str]]:
        rows = quarantined_records(lake, source(), Asked()).orderBy("line").collect()
        return [(row.line, row.last_line, row.records, row.raw) for row in rows]

    assert landed() == {"rows": 2, "rejects": 2 * LINES, "rejects_back": 0}
    singles = [(n, None, 1, "x") for n in range(2, 22)]
    assert kept() == [*singles, (22, 2 * LINES + 2, 2 * LINES - 20, "x")]
    (counted,) = summary(quarantined_records(lake, source(), Asked()))
    assert counted["records"] == 2 * LINES
    assert [row["records"] for row in reasons(quarantined_records(lake, source(), Asked()))] == [2 * LINES]

    def broken() -> list[str]:
        return [verdict.name for verdict in audit(home, source(), lake).failed]

    assert broken() == []
    # other limits are no damage before the file is read by them
    for limits in ("max_rejects: 10", "max_lines: 100", f"max_rejects: {3 * LINES}", f"max_rejects: {LINES}"):
        write_source(home, SOURCE.replace("landing: {", f"landing: {{{limits}, "))
        assert broken() == []
    # with more room the same lines are told one by one
    replay = replay_of(lake, source(), Asked())
    assert replay is not None
    assert landed(replay=replay.files) == {"rows": 0, "rejects": 2 * LINES - 20, "rejects_back": 2 * LINES - 20}
    told = kept()
    assert len(told) == LINES + 1
    assert told[-1] == (LINES + 3, 2 * LINES + 2, LINES, "y")
    assert sum(records for _, _, records, _ in told) == 2 * LINES
    for limits in ("max_rejects: 20", f"max_rejects: {LINES}"):
        write_source(home, SOURCE.replace("landing: {", f"landing: {{{limits}, "))
        assert broken() == []

    # records that can be read leave the range
    lines[LINES + 2 :] = [Reading(0, 11, "b", n).line() for n in range(100)]
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert landed() == {"rows": 100, "rejects": 0, "rejects_back": LINES}
    assert [
        row["records"] for row in dismiss(lake, source(), Asked(rule=counted["rule"]), "never was data", "ada")
    ] == [LINES]
    assert kept() == []
