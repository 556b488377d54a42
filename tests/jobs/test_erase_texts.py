"""An erased entity in files below the home: texts for people lose it, and nothing that Tidemark works by is changed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.config import Settings
from spark_jobs.erasure.texts import scrub_home
from spark_jobs.erasure.words import blacked_out, is_distinct, json_without, names_value, pattern_of

PHONE = "4915123456789"


def write(settings: Settings, name: str, text: str | bytes) -> Path:
    path = settings.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def has_value(path: Path, value: str) -> bool:
    with path.open("rb") as file:
        return names_value(file, value)


def test_texts_for_people_lose_it_and_what_tidemark_works_by_is_listed(settings: Settings) -> None:
    log = write(settings, "logs/airflow/dag_id=m/land.log", f'{{"event": "landed {PHONE}", "rows": 5}}\n')
    plan = write(settings, "plans/p.json", json.dumps({"plan_id": "p", "rows": int(PHONE), "about": [f"a {PHONE}"]}))
    works = {
        "airflow/postgres/postgresql.conf": "a file of a database",
        "server/supervisor.json": "change it by hand",
        "environments/dev/meters.yml": "change it by hand",
        "reports/old.html.gz": "compressed",
        "reports/rows": "no text",
    }
    content = {"reports/old.html.gz": gzip.compress(PHONE.encode()), "reports/rows": b"\0 " + PHONE.encode()}
    before = {name: write(settings, name, content.get(name, f"x = {PHONE}\n")).read_bytes() for name in works}
    texts, left = scrub_home(settings, PHONE)
    assert sorted(texts) == sorted(map(str, (log, plan)))
    assert log.read_text() == f'{{"event": "landed {"*" * len(PHONE)}", "rows": 5}}\n'
    assert json.loads(plan.read_text()) == {"plan_id": "p", "rows": int(PHONE), "about": [f"a {'*' * len(PHONE)}"]}
    for name, remedy in works.items():
        assert [remedy in each for each in left if each.startswith(f"{settings.home / name}: ")] == [True], name
        assert (settings.home / name).read_bytes() == before[name]
    assert len(left) == len(works)


@pytest.mark.parametrize("entity", ["100", "-12345", "N1", "é"])
def test_what_is_too_short_to_tell_is_looked_for_in_no_text(settings: Settings, entity: str) -> None:
    log = write(settings, "logs/a.log", f"max = {entity}\n")
    texts, [left] = scrub_home(settings, entity)
    assert (texts, "were not searched" in left) == ([], True)
    assert log.read_text() == f"max = {entity}\n"
    assert not is_distinct(entity)


def test_a_document_stays_one() -> None:
    document = {"rows": 1000000, "inputs": [{"path": "meters/1000000/a.csv", "bytes": 1000000}], "1000000": None}
    assert json_without(document, pattern_of("1000000")) == {
        **document,
        "inputs": [{"path": "meters/*******/a.csv", "bytes": 1000000}],
    }
    assert blacked_out("11000000 and 1000000", pattern_of("1000000")) == "11000000 and *******"


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_landed_file_is_read_whatever_it_is_compressed_with(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a.ndjson"
    with pa.output_stream(str(path), compression=codec) as file:
        file.write(f'{{"meter": "{PHONE}"}}\n'.encode() * 3)
    assert has_value(path, PHONE)
    assert not has_value(path, PHONE[1:])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(OSError, match=r"end|Truncated"):
        has_value(path, "N380HA")


def test_parquet_is_told_by_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    pq.write_table(pa.table({"of": [[{"meter": PHONE}]]}), path)
    assert has_value(path, PHONE)
    assert not has_value(path, "N380HA")
