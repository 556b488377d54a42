"""Files that look misplaced are named, with what looks meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.cli.hints import hints
from spark_jobs.landing.hints import copies, files_beside, gone_files
from spark_jobs.landing.ledger import RETRACTED
from spark_jobs.sources import parse_source
from tests.landing.test_survey import landed, listed

CLICKS = parse_source(
    """
source: clicks
start: 2024-01-01
landing: {path: "web/clicks/{date}/*.csv", format: csv}
columns: {at: timestamp, visitor: string}
timelines: [at]
event_time: at
entity: visitor
""",
    file="clicks.yml",
)


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ("web/click/2024-01-01/a.csv", ["web/click/2024-01-01 has 1 file"]),
        ("webb/clicks/2024-01-01/a.csv", ["webb/clicks/2024-01-01 has 1 file"]),
        ("web/clicks/2024-01-01/a.CSV", ["web/clicks/2024-01-01 has 1 file, none of which matches *.csv"]),
        ("web/clicks/2024-01-02/a.csv", []),
        ("web/orders/2024-01-01/a.csv", []),
        ("web/click/2024-01-01/.a.csv", []),
    ],
)
def test_a_drop_without_files_names_those_beside_it(tmp_path: Path, there: str, found: list[str]) -> None:
    file = tmp_path / there
    file.parent.mkdir(parents=True)
    file.touch()
    assert files_beside(tmp_path, CLICKS, 0) == found


def test_landed_files_that_are_gone_and_copies_are_named() -> None:
    before = landed("a", "b")
    assert gone_files(listed("b"), before) == ["0/a"]
    taken_back = {path: replace(version, kind=RETRACTED) for path, version in before.items()}
    assert gone_files([], taken_back) == []
    twin, other = listed("a", seq_no=1), listed("b", checksum="two", seq_no=1)
    assert copies([*twin, *other], landed("a").values()) == [("1/a", "0/a")]
    assert copies(listed("c"), landed("a").values()) == [], "a twin in one drop is a matter of moved files"
    assert copies(twin, taken_back.values()) == []


def test_people_read_them_in_sentences() -> None:
    land = {"gone_files": ["0/a", "0/b"], "copied_files": [["1/a", "0/a"]], "files_beside": ["click/x has 1 file"]}
    gone, copied, beside = hints(land, "clicks")
    assert gone.startswith("2 files that landed are not there any more: 0/a and 1 more.")
    assert "`tidemark retract clicks --file 0/a` takes them back" in gone
    assert "1 file with the bytes of one that landed in another drop: 1/a is 0/a." in copied
    assert beside == "did you mean these? click/x has 1 file"
    assert hints({}, "clicks") == []
