"""The JSON Schema of source files: it accepts what is read, and refuses what is refused, as far as a schema can."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from spark_jobs.cli.app import run
from spark_jobs.config import CHECKOUT
from spark_jobs.sources import parse_source
from spark_jobs.sources.problems import SourceFileError
from spark_jobs.sources.schema import json_schema
from spark_jobs.sources.yaml_file import read_yaml

SCHEMA = Draft202012Validator(json_schema())
SOURCE = """
source: meters
start: 2024-01-01
every: 1 h 30 min
landing: {path: "meters/{date}T{hour}{minute}/*", format: csv, max_record: 1 MiB, null_values: ["", "-"]}
columns:
  id: string
  meter: {type: string, from: Meter No}
  at: {type: timestamp, format: ["%d.%m.%Y", iso], timezone: Europe/Berlin, dst: earliest}
  load: float
  price: "decimal(18, 2)"
  gone: bool
timelines: [at]
event_time: at
entity: meter
delta_id: [id]
windows:
  hourly:
    kind: sliding
    size: 60 Min
    key: [meter]
    time: at
    aggregates: {n: count(), total: sum(load)}
    late: {policy: reemit, limit: 12 hours}
    keep: 30 days
  months: {kind: calendar, period: 1 month, key: meter, aggregates: {n: count()}, late: discard}
  batches: {kind: adaptive, min: 1 s, max: 5 min, key: meter, aggregates: {n: count()}, triggers: [time, count(10)]}
state: {mode: upsert, components: [load], delete_when: gone}
compaction: tiered
checks:
  low: {kind: between, column: load, max: 100, treatment: warn}
retention: {since: 1 day, horizon: 2 weeks, bronze: 365 days}
memory: {max_bytes: 64 MiB}
dag: {schedule: manual, owner: us, notify: [], retry_delay: 5 min}
tests:
  one: [{drop: 2024-01-01, rows: [{id: 1}, "a line"], windows: {hourly: [{n: 1}]}, checks: {low: passed}}]
"""


def plain(value: Any) -> Any:
    """A document of YAML as an editor has it: dates are text."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, date | datetime) else value


def errors(text: str) -> list[str]:
    document, _ = read_yaml(text)
    return [error.message for error in SCHEMA.iter_errors(plain(document))]


def is_read(text: str) -> bool:
    try:
        parse_source(text, file="meters.yml")
    except SourceFileError:
        return False
    return True


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(json_schema())


def test_what_is_read_is_accepted() -> None:
    assert is_read(SOURCE)
    assert errors(SOURCE) == []


@pytest.mark.parametrize("path", sorted((CHECKOUT / "dags" / "sources").glob("*.yml")), ids=lambda path: path.name)
def test_the_source_files_of_the_sample_are_accepted(path: Path) -> None:
    assert errors(path.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("source: meters", "source: Meters"),
        ("start: 2024-01-01", "start: soon"),
        ("every: 1 h 30 min", "every: 90"),
        ("every: 1 h 30 min", "every: 3 fortnights"),
        ("format: csv,", "form: csv,"),
        ("max_record: 1 MiB", "max_record: much"),
        ("id: string", "id: text"),
        ("id: string", "Id: string"),
        ("dst: earliest", "dst: sometimes"),
        ("timelines: [at]", "timelines: []"),
        ("event_time: at", "event_time: 5"),
        ("entity: meter\n", ""),
        ("kind: sliding", "kind: slide"),
        ("size: 60 Min", "size: 60"),
        ("n: count()", "n: [count]"),
        ("limit: 12 hours", "limit: long"),
        ("late: discard", "late: drop"),
        ("keep: 30 days", "keep: 30"),
        ("period: 1 month", "period: 1 moon"),
        ("triggers: [time, count(10)]", "triggers: [never]"),
        ("mode: upsert", "mode: latest"),
        ("components: [load]", "components: 5"),
        ("delete_when: gone", "delete_when: {}"),
        ("compaction: tiered", "compaction: tall"),
        ("kind: between, column: load", "kind: among, column: load"),
        ("treatment: warn", "treatment: shrug"),
        ("since: 1 day", "since: 1"),
        ("max_bytes: 64 MiB", "max_bytes: []"),
        ("schedule: manual", "schedule: daily"),
        ("{drop: 2024-01-01, rows", "{drops: 2024-01-01, rows"),
        ("checks: {low: passed}", "checks: {low: fine}"),
    ],
)
def test_what_a_field_refuses_the_schema_refuses(old: str, new: str) -> None:
    assert old in SOURCE
    changed = SOURCE.replace(old, new, 1)
    assert not is_read(changed)
    assert errors(changed) != []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("key: [meter]", "key: [nobody]"),
        ("total: sum(load)", "total: summed(load)"),
        ("late: {policy: reemit, limit: 12 hours}", "late: {policy: discard, limit: 12 hours}"),
        ("format: csv,", "format: xml,"),
    ],
)
def test_what_no_schema_can_say_its_comment_names(old: str, new: str) -> None:
    assert old in SOURCE
    changed = SOURCE.replace(old, new, 1)
    assert not is_read(changed)
    assert errors(changed) == []


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


def test_each_key_says_what_it_means() -> None:
    schema = json_schema()
    silent = [
        f"{place}.{key}"
        for place, part in (("the file", schema), *schema["$defs"].items())
        for form in (part, *part.get("anyOf", ()))
        for key, value in form.get("properties", {}).items()
        # a key that is a part of its own says it there
        if "description" not in value and key != "kind" and "$ref" not in json.dumps(value)
    ]
    assert silent == []
    assert schema["properties"]["entity"]["description"].startswith("The column with the thing that a row is about")
