"""Whatever becomes of landed files, published tables are what a source that lands the content of now for the first time
would publish; rows in files are rows in chunks, quarantine and duplicates."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.definitions.versions import DefinitionChanged
from spark_jobs.errors import ParameterError
from spark_jobs.model import STAGES
from spark_jobs.plans.replay import Asked, quarantined_records, replay_of
from spark_jobs.reads.source_chunks import SourceChunks
from spark_jobs.sources import load_source
from tests.jobs.harness import SOURCE, Reading, lake_of, published, run, write_lines, write_source
from tests.jobs.test_plan import changelog, plan, previewed

NIGHT = 24 * 60
FIRST = [
    Reading(0, 10, "a", 5),
    Reading(0, 65, "a", 7),
    Reading(0, NIGHT - 30, "a", 1),
    Reading(0, NIGHT + 20, "b", 9),  # future-dated: the drop before its own day
]
SECOND = [
    Reading(0, 65, "a", 7, seen=30),  # the same delta again, with another value
    Reading(0, 300, "c", 4),
]
NEXT = [
    Reading(1, NIGHT - 20, "a", 3),  # late
    Reading(1, NIGHT + 30, "a", 4),
    Reading(0, 10, "a", 5),  # a delta of the day before
    Reading(1, NIGHT + 500, "b", 6),
]
LAST = [Reading(2, 2 * NIGHT + 5, "b", 1), Reading(2, 40, "c", 2)]


def lines(readings: list[Reading]) -> list[str]:
    return [reading.line() for reading in readings]


@dataclass
class Lake:
    """A source with a history, and sources made from scratch to compare it with."""

    spark: SparkSession
    home: Settings
    text: str = SOURCE
    scratches: int = 0
    last: list[dict[str, Any]] = field(default_factory=list)

    def write(self, drop: int, content: list[Reading] | list[str], name: str = "a.ndjson") -> Path:
        text = [c.line() if isinstance(c, Reading) else c for c in content]
        return write_lines(self.home, drop, text, name)

    def run(self, first: int, last: int, **options: Any) -> dict[str, Any]:
        """Run the drops; the summary of landing."""
        self.last = run(self.spark, self.home, first, last, **options)
        return self.last[0]

    def says(self, name: str = "meters", mark: str = "") -> dict[str, list[tuple[Any, ...]]]:
        """All published rows of a source whose windows' names end with `mark`, row ids and late rows too."""
        spark = self.spark
        late = spark.table("silver.late").where(f"source = '{name}'").drop("source", "known_from")
        state = spark.table("gold.state").where(f"source = '{name}'").drop("source", "known_from", "revision")
        windows = {w: published(spark, f"silver.{w}{mark}", "final") for w in ("hourly", "shifts")}
        return {
            **windows,
            "late": sorted((row.definition.removesuffix(mark), *row[1:]) for row in late.collect()),
            "state": sorted(map(tuple, state.collect()), key=repr),
        }

    def check(self) -> None:
        """Compare with a source that lands the present content in one run, and count rows."""
        self.scratches += 1
        name, mark = f"scratch{self.scratches}", f"_{self.scratches}"
        text = self.text.replace("source: meters", f"source: {name}")
        for window in ("hourly", "shifts"):
            text = text.replace(f"  {window}:", f"  {window}{mark}:")
        write_source(self.home, text, name)
        run(self.spark, self.home, 0, 2, source=name)
        assert self.says() == self.says(name, mark)
        files = sorted((self.home.landing_folder / "meters").rglob("*.ndjson"))
        in_files = sum(len(path.read_text().splitlines()) for path in files)
        for source in ("meters", name):
            assert self.rows(source) == in_files, source
        self.check_queries(name)

    def rows(self, source: str) -> int:
        """Rows in chunks, in quarantine and in duplicates; the ledger says the same."""
        where = f"source = '{source}'"
        found = [
            self.spark.table(f"bronze.{source}_deltas").count(),
            self.spark.table("bronze.quarantine").where(f"{where} AND replay_state = 'open'").count(),
            self.spark.table("bronze.duplicates").where(where).count(),
        ]
        names = ("rows", "rejects", "duplicates")
        sums = ", ".join(f"sum({n}) - sum({n}_back) AS {n}" for n in names)
        ledger = self.spark.sql(f"SELECT {sums} FROM bronze.files WHERE {where}").collect()[0]
        assert found == [ledger[n] for n in names]
        return sum(found)

    def check_queries(self, scratch: str) -> None:
        """Range queries of chunks leave out what was taken back."""
        found = []
        for name in ("meters", scratch):
            chunks = SourceChunks(lake_of(self.spark), load_source(self.home.sources / f"{name}.yml"))
            found.append([chunks.range_query(m, "taken", 0, 2**60, ["id", "load"]).to_pylist() for m in "abc"])
        assert found[0] == found[1]

    def quarantine(self) -> Counter[tuple[Any, ...]]:
        rows = self.spark.table("bronze.quarantine").where("source = 'meters'").collect()
        return Counter((row.file.rsplit("/", 1)[1], row.line, row.rule, row.replay_state) for row in rows)


@pytest.fixture
def landed(lake: SparkSession, spark_settings: Settings, tmp_path: Path) -> Lake:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    made = Lake(lake, write_source(settings))
    made.write(0, [*lines(FIRST[:2]), '{"id": "broken', *lines(FIRST[2:])])
    made.write(0, SECOND, "b.ndjson")
    made.write(1, NEXT)
    made.write(2, LAST)
    made.run(0, 2)
    return made


def unchanged(landed: Lake, *drops: int, **options: Any) -> None:
    """A run of the drops commits nothing."""
    landed.run(drops[0], drops[-1], **options)
    assert [summary["commits"] for summary in landed.last] == [0] * len(STAGES)


@pytest.mark.spark
@pytest.mark.turns
def test_a_changed_file_lands_as_the_difference_that_a_plan_has_shown(landed: Lake) -> None:
    spark, home = landed.spark, landed.home
    assert landed.rows("meters") == 13
    # the first row goes, so the row of the next drop with its delta counts; one changes, one is mended, one comes
    changed = [Reading(0, 65, "a", 70), Reading(0, 120, "a", 2), FIRST[2], FIRST[3], Reading(0, 400, "d", 1)]
    landed.write(0, changed)
    made = plan(spark, home, 0, 0)
    assert (made.drops[0].changed, made.drops[0].new) == (["meters/2024-01-01/a.ndjson"], [])
    land = landed.run(0, 0, planned=made.base)
    assert changelog(spark, "test-0-0", made) == previewed(made)
    told = {name: land[name] for name in ("rows", "rows_back", "rejects_back", "duplicates_back", "changed_files")}
    assert told == {
        # the last row of the file moved by a line; the row of the next drop with the delta that went counts. The other
        # file has the lesser place, so its row with the same delta did already
        "rows": 6,
        "rows_back": 3,
        "rejects_back": 1,
        "duplicates_back": 2,
        "changed_files": ["meters/2024-01-01/a.ndjson"],
    }
    assert landed.quarantine() == {("a.ndjson", 3, "bad_json", "replayed"): 1}
    landed.check()
    unchanged(landed, 0, 2)


@pytest.mark.spark
@pytest.mark.long
def test_files_that_join_go_before_rows_that_counted_and_the_gone_keep_theirs(landed: Lake) -> None:
    # its name goes first, and its row before the one of the last drop
    landed.write(0, [LAST[1].line(), Reading(0, 20, "a", 3).line(), "nonsense"], "0.ndjson")
    land = landed.run(0, 0)
    told = {name: land[name] for name in ("rows", "rows_back", "rejects", "duplicates", "duplicates_back")}
    assert told == {"rows": 2, "rows_back": 1, "rejects": 1, "duplicates": 1, "duplicates_back": 0}
    landed.check()
    unchanged(landed, 0, 0)
    (landed.home.landing_folder / "meters" / "2024-01-01" / "a.ndjson").unlink()
    before = landed.says()
    unchanged(landed, 0, 2)
    assert landed.says() == before


@pytest.mark.spark
@pytest.mark.long
def test_a_retraction_takes_back_and_lasts(landed: Lake) -> None:
    path = landed.home.landing_folder / "meters" / "2024-01-01" / "a.ndjson"
    name = "meters/2024-01-01/a.ndjson"
    with pytest.raises(ParameterError, match="a landed file"):
        landed.run(0, 0, retract=True, only_file="meters/2024-01-01/z.ndjson")
    assert landed.run(0, 0, retract=True, only_file=name)["retracted_files"] == [name]
    unchanged(landed, 0, 2)
    unchanged(landed, 0, 0, retract=True, only_file=name)
    content = path.read_text()
    path.unlink()
    landed.check()
    assert landed.quarantine() == {("a.ndjson", 3, "bad_json", "retracted"): 1}
    path.write_text(content)
    assert landed.run(0, 0, only_file=name)["rows"] > 0
    landed.check()


@pytest.mark.spark
@pytest.mark.long
def test_a_version_that_cannot_be_read_replaces_nothing(landed: Lake) -> None:
    path = landed.home.landing_folder / "meters" / "2024-01-02" / "a.ndjson"
    whole, before = path.read_text(), landed.says()
    path.write_bytes(gzip.compress(whole.encode())[:-9])
    land = landed.run(1, 1)
    assert (land["rejects"], land["rows"], land["rows_back"]) == (1, 0, 0)
    assert landed.says() == before
    assert landed.quarantine()["a.ndjson", None, "truncated_file", "open"] == 1
    unchanged(landed, 0, 2)
    landed.write(1, [*NEXT, Reading(1, NIGHT + 45, "a", 2)])
    assert landed.run(1, 1)["rows"] == 1
    assert landed.quarantine()["a.ndjson", None, "truncated_file", "replayed"] == 1
    landed.check()


@pytest.mark.spark
@pytest.mark.long
def test_another_parse_rule_and_a_new_column_land_what_they_change_and_a_replay_lands_it_once(landed: Lake) -> None:
    row = json.loads(Reading(1, NIGHT + 90, "b", 3).line())
    noted = [{**row, "id": "n1", "note": "cold"}, {**row, "id": "n2", "load": "-"}]
    landed.write(1, [*lines(NEXT), *map(json.dumps, noted)])
    landed.run(1, 1)
    assert landed.quarantine()["a.ndjson", 6, "bad_int", "open"] == 1
    source = load_source(landed.home.sources / "meters.yml")
    bad = Asked(rule="bad_int")
    again = replay_of(landed.spark, source, bad)
    assert again is not None
    unchanged(landed, 1, 1, replay=again.files)
    changed = SOURCE.replace(
        "load: int,", 'load: {type: int, null_values: ["-"]}, note: {type: string, optional: true},'
    )
    landed.text = changed
    write_source(landed.home, changed)
    with pytest.raises(DefinitionChanged):
        landed.run(1, 1, replay=again.files)
    land = landed.run(1, 1, replay=again.files, accept_definition=True)
    # the row that was rejected, and the one that has a note, which was in `extra` before
    assert (land["rows"], land["rows_back"], land["rejects_back"]) == (2, 1, 1)
    assert landed.quarantine()["a.ndjson", 6, "bad_int", "replayed"] == 1
    landed.check()
    source = load_source(landed.home.sources / "meters.yml")
    assert replay_of(landed.spark, source, bad) is None
    assert quarantined_records(landed.spark, source, Asked(state=None)).count() == 2
    unchanged(landed, 0, 2)
