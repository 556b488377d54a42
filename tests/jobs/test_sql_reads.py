"""Reads of states by SQL that the lake server noted, and the counts that are made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.model import NOTED_READS
from spark_jobs.reads.sql_reads import count_noted_reads
from spark_jobs.storage.coordination.read_counts import Reads, reads_of
from tests.jobs.harness import MINUTE, START, Session, _iso, lake_of, run, write_lines, write_source
from tests.jobs.test_chains import UPSERT


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    settings = write_source(settings, UPSERT)
    row = '{{"id": "{meter}{n}", "meter": "{meter}", "at": "{at}", "load": {n}}}'
    rows = [(meter, n) for meter, count in (("a b", 5), ("n", 2)) for n in range(count)]
    write_lines(settings, 0, [row.format(meter=m, n=n, at=_iso(START + n * MINUTE)) for m, n in rows])
    return settings


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("meters\t", Reads(1)),
        ("meters\tload=a+b", Reads(1)),
        ("meters\tmeter=a+b&load=n", Reads(0, {3: 1})),
        ("meters_as_of\tmeter=n&meter=a+b", Reads(0, {2: 1, 3: 1})),
        ("meters\tmeter=gone", Reads(0, {0: 1})),
        ("chains\tsource=meters&entity=n", Reads(0, {2: 1})),
        ("checkpoints\t", Reads(1)),
        ("checkpoints\tsource=others", Reads()),
        ("others\t", Reads()),
        ("", Reads()),
    ],
)
def test_a_noted_read_counts_once(lake: Session, home: Settings, line: str, reads: Reads) -> None:
    run(lake, home, 0, 0)
    of, notes = lake_of(lake), home.home / NOTED_READS
    notes.parent.mkdir(exist_ok=True)
    notes.write_text(f"{line}\n")
    for _ in range(2):
        count_noted_reads(of, home.home, home.sources)
        assert (notes.read_text(), reads_of(of, home.home, "meters")) == ("", reads)
