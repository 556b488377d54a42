"""Source files: what reads, and that every problem of a file is told at once: its path, what was expected and found."""

from __future__ import annotations

import copy
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from spark_jobs.errors import ParameterError
from spark_jobs.sources import Source, SourceFileError, find_source, load_source, parse_source, read_sources
from spark_jobs.sources.folder import source_files
from spark_jobs.sources.source import Dag

SHIPPED = Path(__file__).parents[2] / "dags" / "sources"


def shop() -> dict[str, Any]:
    """A small source file that reads well; tests change one thing in it."""
    return {
        "source": "shop",
        "start": "2024-01-01",
        "landing": {"path": "shop/{date}/*", "format": "ndjson"},
        "columns": {"at": "timestamp", "seen": "timestamp", "till": "string", "amount": "int", "weight": "float"},
        "timelines": ["at", "seen"],
        "event_time": "at",
        "entity": "till",
        "windows": {
            "sales": {
                "kind": "sliding",
                "size": "1 h",
                "key": "till",
                "aggregates": {"n": "count()", "sum_": "sum(amount)"},
            }
        },
        "state": {"mode": "add", "datatype": "int64", "components": {"amount": "amount", "visits": 1}},
    }


TUMBLING = {"kind": "tumbling", "size": "1 h", "key": "till", "aggregates": {"n": "count()"}}


def read(document: Any) -> Source:
    return parse_source(yaml.safe_dump(document, sort_keys=False), file="shop.yml")


def problems(document: Any) -> dict[str, tuple[str, str]]:
    with pytest.raises(SourceFileError) as refused:
        parse_source(
            document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False), file="shop.yml"
        )
    assert refused.value.code == "source_file"
    assert refused.value.as_json()["problems"] == refused.value.problems
    for problem in refused.value.problems:
        assert set(problem) == {"path", "expected", "found"}
        assert problem["path"] in str(refused.value)
    return {problem["path"]: (problem["expected"], problem["found"]) for problem in refused.value.problems}


def changed(path: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(shop())
    *parents, last = path.split(".")
    node = document
    for part in parents:
        node = node[part]
    node[last] = value
    return document


def test_the_shipped_sources_read() -> None:
    sources = read_sources(SHIPPED).sources
    assert set(sources) == {"flights", "weather"}
    flights, weather = sources["flights"], sources["weather"]
    assert flights.entity == "tailnum"
    assert flights.delta_id == ("carrier", "flight", "origin", "scheduled")
    assert flights.event_time == ("departed", "scheduled")
    assert flights.arrival == "known"
    assert flights.windows["departure_delays"].late.limit_us == 24 * 3_600_000_000
    assert flights.windows["rotations"].late.limit_us is None
    assert flights.state is not None
    assert flights.state.components == {
        "flights": 1,
        "air_minutes": "air_time",
        "miles": "distance",
        "delay_minutes": "dep_delay",
    }
    assert weather.state is not None
    assert len(weather.state.components) == 9
    assert weather.primary_timeline == "time_hour"


def test_short_forms_mean_the_same_as_long_ones() -> None:
    long = shop()
    long["columns"]["amount"] = {"type": "int"}
    long["timelines"] = {"at": "at", "seen": "seen"}
    long["event_time"] = ["at"]
    long["windows"]["sales"] |= {"key": ["till"], "time": "at", "late": {"policy": "reemit"}, "size": "60 min"}
    long["every"] = "24 hours"
    assert read(long).definition_parts() == read(shop()).definition_parts()


def test_every_problem_of_a_file_is_told_at_once() -> None:
    document = shop()
    document["evry"] = "1 day"
    document["columns"]["amount"] = "integer"
    document["windows"]["sales"] |= {"size": 60, "grace": "1 parsec", "key": "tell", "late": "drop"}
    document["windows"]["sales"]["aggregates"]["n"] = "avg(till)"
    document["state"]["components"] |= {"Bad": 1, "half": 0.5, "of": "till"}
    document["entity"] = "tilt"
    found = problems(document)
    assert set(found) == {
        "evry",
        "columns.amount",
        "windows.sales.size",
        "windows.sales.grace",
        "windows.sales.key",
        "windows.sales.late",
        "windows.sales.aggregates.n",
        "state.components.Bad",
        "state.components.half",
        "state.components.of",
        "entity",
    }
    assert "did you mean `every`?" in found["evry"][1]
    assert "did you mean `till`?" in found["entity"][1]
    assert "a duration with its unit" in found["windows.sales.grace"][0]
    assert found["windows.sales.size"][1] == "60"


@pytest.mark.parametrize(
    ("path", "value", "at", "expected"),
    [
        ("source", "shops", "source", "the file's name"),
        ("source", 5, "source", "string"),
        ("start", "yesterday", "start", "a date"),
        ("start", "2024-01-01T05:00", "start", "a multiple of 1 day"),
        ("every", "7 hours", "every", "divide a day"),
        ("every", "36 hours", "every", "whole days"),
        ("every", "0 min", "every", "greater than zero"),
        ("every", "90 s", "every", "whole minutes"),
        ("every", "1 h", "landing.path", "{hour}"),
        ("every", "30 min", "landing.path", "{minute}"),
        ("landing.path", "../x/{date}/*", "landing.path", "without `..`"),
        ("landing.path", "/x/{date}/*", "landing.path", "below the landing directory"),
        ("landing.path", "x/{day}/*", "landing.path", "placeholders"),
        ("landing.path", "x/*/{date}", "landing.path", "last part"),
        ("landing.path", "x/*", "landing.path", "{date}"),
        ("landing.format", "xml", "landing.format", "csv"),
        ("landing.delimiter", '"', "landing", "delimiter"),
        ("landing.max_record", "1 parsec", "landing.max_record", "a size"),
        ("landing.max_record", "1 GiB", "landing.max_record", "at most 64 MiB"),
        ("columns.Name", "int", "columns.Name", "lowercase"),
        ("columns.order", "int", "columns.order", "no word of SQL"),
        ("columns.twice", {"type": "int", "from": "amount"}, "columns.twice", "a column of the file for each"),
        ("columns.at", {"type": "timestamp", "timezone": "Mars/Base"}, "columns.at.timezone", "time zone"),
        ("columns.at", {"type": "timestamp", "format": "%Q"}, "columns.at.format", "pattern"),
        ("columns.amount", {"type": "int", "format": "iso"}, "columns.amount", "only a timestamp"),
        ("columns.amount", {"from": "x"}, "columns.amount.type", "to be given"),
        ("unknown_columns", "drop", "unknown_columns", "keep"),
        ("timelines.0", "amount", "timelines.amount", "timestamp"),
        ("event_time", ["at", "at"], "event_time", "once"),
        ("event_time", "when", "event_time", "timeline"),
        ("arrival", "never", "arrival", "timeline"),
        ("entity", "weight", "entity", "a column of type"),
        ("delta_id", ["till", "weight"], "delta_id", "a column of type"),
        ("windows.late", TUMBLING, "windows.late", "own"),
        ("windows.sales.kind", "slide", "windows.sales.kind", "sliding"),
        ("windows.sales.size", "0 s", "windows.sales.size", "greater than zero"),
        ("windows.sales.aggregates", {}, "windows.sales.aggregates", "at least 1"),
        ("windows.sales.aggregates.till", "count()", "windows.sales.aggregates.till", "no key"),
        ("windows.sales.aggregates.window_end", "count()", "windows.sales.aggregates.window_end", "own"),
        ("windows.sales.aggregates.n", "sum()", "windows.sales.aggregates.n", "sum(column)"),
        ("windows.sales.aggregates.n", "median(amount)", "windows.sales.aggregates.n", "count()"),
        ("windows.sales.late", {"policy": "discard", "limit": "1 h"}, "windows.sales.late", "only the policy reemit"),
        ("state.mode", "diff", "state.components.visits", "only mode add"),
        ("state.components.weight", "weight", "state.components.weight", "a column of type int"),
        ("state.components.entity", 1, "state.components.entity", "own"),
        ("state.components.timestamp", 1, "state.components.timestamp", "own"),
        ("state.components.valid_to", 1, "state.components.valid_to", "own"),
        ("state.components.till", 1, "state.components.till", "the entity's"),
        ("state.components.yes", True, "state.components.yes", "valid"),
        ("dag", {"retries": -1}, "dag.retries", "greater than or equal to 0"),
    ],
)  # fmt: skip
def test_one_wrong_field_is_one_problem_at_its_path(path: str, value: Any, at: str, expected: str) -> None:
    document = shop()
    if path == "timelines.0":
        document["timelines"] = ["amount", "at", "seen"]
    else:
        document = changed(path, value)
    found = problems(document)
    assert any(expected in problem[0] for where, problem in found.items() if where == at), found
    assert set(found) == {at}


HOPPING = {"kind": "hopping", "size": "1 h", "advance": "20 min"}
ADAPTIVE = {"kind": "adaptive"}
SLIDING = {"kind": "sliding", "size": "1 h"}
HISTORY = ("era", "token", "time", "at", "known_to")


@pytest.mark.parametrize(
    ("window", "at", "expected"),
    [
        ({"kind": "sliding"}, "size", "to be given"),
        ({"kind": "session"}, "gap", "to be given"),
        ({"kind": "session", "gap": "0 s"}, "gap", "greater than zero"),
        ({"kind": "sliding", "size": 60}, "size", "with its unit"),
        ({"size": "1 h"}, "kind", "to be given"),
        ({"kind": "tumbling", "size": "1 month"}, "size", "units"),
        ({"kind": "tumbling", "size": "1 h", "advance": "1 h"}, "advance", "one of the keys"),
        (HOPPING | {"advance": "2 h"}, "advance", "at most the size, 1 hour"),
        (HOPPING | {"advance": "3599 us"}, "advance", "a millionth of the size"),
        ({"kind": "hopping", "size": "1 h", "step": "1 h"}, "step", "`advance`"),
        ({"kind": "hopping", "size": "1 h", "step": "1 h"}, "advance", "to be given"),
        ({"kind": "calendar", "period": "1 hour"}, "period", "day, week, month, quarter, year"),
        ({"kind": "calendar", "period": "0 days"}, "period", "from 1 to 1000"),
        ({"kind": "calendar", "period": "1 day", "zone": "Mars/Base"}, "zone", "time zone"),
        (ADAPTIVE | {"min": "2 h", "max": "1 h"}, "max", "at least `min`, 2 hours"),
        (ADAPTIVE | {"rate_window": "0 s"}, "rate_window", "greater than zero"),
        (HOPPING | {"rate_window": "1 h"}, "rate_window", "one of the keys"),
        (ADAPTIVE | {"target_batch_size": 0}, "target_batch_size", "greater than 0"),
        (ADAPTIVE | {"target": 5}, "target", "`target_batch_size`"),
        (ADAPTIVE | {"triggers": ["tme"]}, "triggers.0", "count(rows)"),
        (ADAPTIVE | {"triggers": ["time", "count(0)"]}, "triggers.1", "1 row or more"),
        (ADAPTIVE | {"triggers": ["memory_pressure(1.5)"]}, "triggers.0", "at most 1"),
        (ADAPTIVE | {"triggers": ["size(1 parsec)"]}, "triggers.0", "a size"),
        (ADAPTIVE | {"triggers": []}, "triggers", "at least one"),
        (ADAPTIVE | {"vector": "tell"}, "vector", "declared column"),
        (ADAPTIVE | {"size_bytes": "till"}, "size_bytes", "a column of type int"),
        (ADAPTIVE | {"memory": {"max_bytes": 0}}, "memory.max_bytes", "a size"),
        (HOPPING | {"grace": "1 h", "late": "discard"}, "grace", "`grace` or `late`, not both"),
        (HOPPING | {"grace": {"period": "1 h", "stream": "tell"}}, "grace.stream", "declared column"),
        (SLIDING | {"tick": "7 ms"}, "tick", "a whole number makes up a second"),
        (SLIDING | {"tick": "1 ms", "grace": "1 us"}, "tick", "a whole number makes up a second"),
        (SLIDING | {"tick": "1 min"}, "tick", "a whole number makes up a second"),
        (HOPPING | {"tick": "1 ms"}, "tick", "one of the keys"),
        (HOPPING | {"aggregates": {"stats": "avg(till)"}}, "aggregates.stats", "float or int for avg"),
        (HOPPING | {"aggregates": {"q": "approx_quantile(amount)"}}, "aggregates.q", "fraction from 0 to 1"),
        (HOPPING | {"aggregates": {"q": "approx_quantile(amount, 2)"}}, "aggregates.q", "fraction from 0 to 1"),
        (HOPPING | {"aggregates": {"q": "approx_quantile(amount, 1, 1e-30)"}}, "aggregates.q", "accuracy"),
        (HOPPING | {"aggregates": {"c": "collect(amount)"}}, "aggregates.c", "limit a whole number from 1"),
        (HOPPING | {"aggregates": {"c": "collect(amount, 1.5)"}}, "aggregates.c", "limit a whole number from 1"),
        (HOPPING | {"aggregates": {"v": "vector_sum(amount, till)"}}, "aggregates.v", "float or int"),
        (HOPPING | {"aggregates": {"v": "vector_sum()"}}, "aggregates.v", "vector_sum(column, …)"),
        (HOPPING | {"aggregates": {"n": "count"}}, "aggregates.n", "count()"),
        (HOPPING | {"aggregates": {"m": "min(amount, weight)"}}, "aggregates.m", "min(column)"),
        (ADAPTIVE | {"aggregates": {"stats": "count()"}}, "aggregates", "adaptive windows"),
        *((HOPPING | {"aggregates": {n: "count()"}}, f"aggregates.{n}", "no column of Tidemark") for n in HISTORY),
    ],
)  # fmt: skip
def test_a_wrong_parameter_of_a_window_is_named_at_its_path(window: dict[str, Any], at: str, expected: str) -> None:
    document = changed("windows.sales", {"key": "till", "aggregates": {"n": "count()"}} | window)
    document["delta_id"] = ["till"]
    found = problems(document)
    assert expected in found[f"windows.sales.{at}"][0], found
    assert {path.removeprefix("windows.sales.") for path in found} <= {at, "step", "advance"}


def test_all_wrong_parameters_of_a_window_are_named_at_once() -> None:
    wrong = {"min": "2 h", "max": "1 h", "reset": "0 s", "triggers": ["time", "sise(1)"], "late": "next"}
    found = problems(changed("windows.sales", {**ADAPTIVE, **wrong, "key": "tell", "aggregates": {"n": "sum(till)"}}))
    assert set(found) == {
        f"windows.sales.{field}"
        for field in ("kind", "max", "reset", "triggers.1", "late", "key", "aggregates.n")
    }  # fmt: skip
    assert "delta_id" in found["windows.sales.kind"][0], "adaptive windows list their deltas"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a source"),
        ("- a", "a mapping"),
        ("source: [", "valid YAML"),
        ("source: a\nsource: b", "every key once"),
        ("source: shop\nwindows: {w: {kind: session, kind: sliding}}", "every key once"),
        ("on: 1", "text as keys"),
        ("a: &x [1]\nb: *x", "without aliases"),
        ("a: !!python/object/apply:os.system [echo]", "valid YAML"),
        ("x" * 2_000_000, "at most"),
    ],
)
def test_a_file_that_is_no_plain_yaml_mapping_is_refused(text: str, expected: str) -> None:
    assert any(expected in problem[0] for problem in [problems(text).get("", ("", ""))]) or any(
        expected in wanted for wanted, _ in problems(text).values()
    )


def test_a_date_that_no_calendar_has_is_one_problem_among_the_others() -> None:
    text = yaml.safe_dump({**shop(), "entity": 1}).replace("'2024-01-01'", "2024-13-01")
    assert set(problems(text)) == {"start", "entity"}


def test_a_file_that_is_not_utf8_or_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.yml"
    with pytest.raises(SourceFileError):
        load_source(path)
    path.write_bytes(b"source: \xff")
    with pytest.raises(SourceFileError, match="UTF-8"):
        load_source(path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    for read in (read_sources, source_files, partial(find_source, name="meters")):
        with pytest.raises(ParameterError, match=r"TIDEMARK_SOURCES names, found no folder .*nowhere"):
            read(tmp_path / "nowhere")


def test_a_folder_lists_broken_files_beside_the_sources_that_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "shop.yml").write_text(yaml.safe_dump(shop() | {"entity": "x"}))
    (tmp_path / "kiosk.yaml").write_text(yaml.safe_dump(shop() | {"source": "kiosk", "arrival": "x"}))
    (tmp_path / "stall.yaml").write_text(yaml.safe_dump(shop() | {"source": "stall"}))
    (tmp_path / "_draft.yml").write_text("not read")
    folder = read_sources(tmp_path)
    assert ([*folder.sources], folder.files) == (["stall"], {"stall": "stall.yaml"})
    assert [(e.file, [p["path"] for p in e.problems]) for e in folder.problems()] == [
        ("kiosk.yaml", ["arrival"]),
        ("shop.yml", ["entity"]),
    ]
    assert find_source(tmp_path, "stall") == folder.sources["stall"]
    with pytest.raises(ParameterError, match="did you mean `stall`"):
        find_source(tmp_path, "stalls")


@pytest.mark.parametrize(
    ("path", "value", "meant"),
    [
        ("columns.at", "timestmap", "timestamp"),
        ("columns.at", {"type": "dte"}, "date"),
        ("landing.format", "cvs", "csv"),
        ("unknown_columns", "kep", "keep"),
        ("windows.sales.kind", "tumblin", "tumbling"),
        ("windows.sales.late", "remit", "reemit"),
        ("windows.sales.late", {"policy": "next-window"}, "next_window"),
        ("windows.sales.aggregates.n", "cuont()", "count"),
        ("windows.sales.aggregates.n", "count_distinkt(at)", "count_distinct"),
        ("state.mode", "upsrt", "upsert"),
        ("compaction.strategy", "tierd", "tiered"),
    ],
)
def test_a_misspelt_word_is_answered_by_the_nearest_one(path: str, value: Any, meant: str) -> None:
    document = shop()
    *parents, last = path.split(".")
    place = document
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    found = [found for at, (_, found) in problems(document).items() if at.startswith(path)]
    assert found, "the word is refused"
    assert f"(did you mean `{meant}`?)" in found[0]


def test_two_files_of_one_source_are_refused_with_both_names(tmp_path: Path) -> None:
    for suffix in ("yml", "yaml"):
        (tmp_path / f"shop.{suffix}").write_text(yaml.safe_dump(shop()))
    assert [*read_sources(tmp_path).sources] == []
    with pytest.raises(SourceFileError, match=r"shop.yaml and shop.yml"):
        find_source(tmp_path, "shop")


def test_two_sources_cannot_own_one_window_table(tmp_path: Path) -> None:
    (tmp_path / "shop.yml").write_text(yaml.safe_dump(shop()))
    (tmp_path / "kiosk.yml").write_text(yaml.safe_dump(shop() | {"source": "kiosk"}))
    folder = read_sources(tmp_path)
    assert {"kiosk", "shop"} == {*folder.sources}
    told = {error.file: error.sentence() for error in folder.problems()}
    assert "in shop.yml" in told["kiosk.yml"]
    assert "in kiosk.yml" in told["shop.yml"]
    assert [p.path for p in folder.clashes(folder.sources["shop"])] == ["windows.sales"]


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("windows.sales.size", "2 h", "window.sales"),
        ("windows.sales.late", "discard", "window.sales"),
        ("columns.amount", {"type": "int", "null_values": ["-"]}, "parse"),
        ("columns.amount", {"type": "int", "optional": True}, "parse"),
        ("columns.at", {"type": "timestamp", "format": ["epoch_s", "iso"]}, "parse"),
        ("landing.encoding", "cp1252", "parse"),
        ("landing.decimal", ",", "parse"),
        ("landing.escape", "\\", "parse"),
        ("unknown_columns", "fail", "parse"),
        ("start", "2023-12-01", "drops"),
        ("landing.delimiter", ";", "parse"),
        ("delta_id", ["till"], "delta"),
        ("arrival", "seen", "delta"),
        ("state.components.visits", 2, "state"),
    ],
)
def test_a_change_that_results_depend_on_changes_the_hash_of_its_part_alone(path: str, value: Any, part: str) -> None:
    before, after = read(shop()), read(changed(path, value))
    assert before.definition_parts() != after.definition_parts()
    parts, parts_after = before.definition_parts(), after.definition_parts()
    assert {name for name in parts if parts[name] != parts_after[name]} == {part}


def test_sources_of_earlier_releases_keep_their_definition() -> None:
    """Lakes that exist were made by these hashes; another one would have to be accepted."""
    parts = {name: source.definition_parts()["parse"] for name, source in read_sources(SHIPPED).sources.items()}
    assert parts == {"flights": "d2fd392d01826b0f87dbb29081772837", "weather": "b3867a021c15e01b29d404ec1527d0c7"}


def test_a_landing_says_its_encoding_by_the_name_of_python() -> None:
    for name in ("Windows-1252", "cp1252"):
        assert read(changed("landing", shop()["landing"] | {"encoding": name})).landing.dialect() == {
            "encoding": "cp1252"
        }
    assert "did you mean" in problems(changed("landing.encoding", "cp1253x"))["landing.encoding"][1]


def test_settings_that_no_result_depends_on_leave_the_hash_alone() -> None:
    document = shop() | {"description": "x", "dag": {"tags": ["x"], "retries": 0}}
    document["landing"] = document["landing"] | {"path": "elsewhere/{date}.ndjson"}
    document["columns"] = dict(reversed(document["columns"].items()))
    assert read(document).definition_parts() == read(shop()).definition_parts()


def test_retention_keeps_everything_unless_it_is_declared() -> None:
    assert read(shop()).retention.model_dump() == dict.fromkeys(("since_us", "horizon_us", "bronze_us"))
    kept = read({**shop(), "retention": {"since": "30 days", "horizon": "1 week"}}).retention
    assert (kept.since_us, kept.horizon_us) == (30 * 86_400_000_000, 7 * 86_400_000_000)
    assert "retention.since" in problems({**shop(), "retention": {"since": "0 days"}})
    all_three = {"since": "30 days", "horizon": "90 days", "bronze": "365 days"}
    assert read({**shop(), "retention": all_three}).retention.bronze_us == 365 * 86_400_000_000
    for missing in ("since", "horizon"):
        some = {key: value for key, value in all_three.items() if key != missing}
        assert "`since` and `horizon` beside `bronze`" in problems({**shop(), "retention": some})["retention"][0]
    assert read({**shop(), "retention": {"since": "1 day"}}).definition_parts() == read(shop()).definition_parts()


def deltas_of_shop() -> dict[str, Any]:
    """A source whose rows say their operations."""
    document = shop()
    document["columns"] |= {"id": "string", "op": "string", "at_index": "string", "put": "string", "factor": "float"}
    document["delta_id"] = "id"
    columns = {"op": "op", "indices": "at_index", "values": "put", "scalar": "factor", "parent": "id"}
    document["state"] = {"mode": "operations", "length": 8, "operations": columns}
    return document


def test_rows_may_say_their_operation() -> None:
    source = read(deltas_of_shop())
    assert source.state is not None
    assert (source.state.width, source.keeps_chains, source.state.components) == (8, True, {})
    named = deltas_of_shop()
    del named["state"]["length"]
    assert read(named).state.width is None  # type: ignore[union-attr]
    named["state"]["components"] = ["x", "y"]
    assert read(named).state.width == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ({"operations": None}, "state", "columns that say what a row does"),
        ({"components": ["x"]}, "state", "`length` or named `components`"),
        ({"components": {"x": "amount"}, "length": None}, "state.components.x", "a list of names"),
        ({"delete_when": "op"}, "state", "no `delete_when`"),
        ({"length": 0}, "state.length", "greater than 0"),
        ({"operations": {"op": "amount"}}, "state.operations.op", "a column of type string"),
        ({"operations": {"op": "op", "indices": "nowhere"}}, "state.operations.indices", "declared column"),
        ({"operations": {"op": "op", "scalar": "till"}}, "state.operations.scalar", "float or int"),
        ({"operations": {"op": "op", "value": "put"}}, "state.operations.value", "one of the keys"),
        ({"operations": {"values": "put"}}, "state.operations.op", "this key to be given"),
        ({"mode": "add", "components": {"n": 1}}, "state", "no operations and no length"),
        ({"mode": "upsert", "length": None, "operations": None}, "state", "`components`, at least one"),
    ],
)
def test_what_operations_take_is_checked(change: dict[str, Any], path: str, expected: str) -> None:
    document = deltas_of_shop()
    document["state"] = {k: v for k, v in (document["state"] | change).items() if v is not None}
    found = problems(document)
    assert path in found, found
    assert expected in found[path][0]


def test_a_parent_needs_delta_ids_to_be_found_by() -> None:
    document = deltas_of_shop()
    del document["delta_id"]
    assert "`delta_id`" in problems(document)["state.operations.parent"][0]


def test_rows_may_delete_their_entity() -> None:
    document = shop()
    document["columns"] |= {"closed": "bool", "status": "string"}
    document["state"] = {"mode": "upsert", "components": ["amount", "weight"], "delete_when": "closed"}
    deletes = read(document).state.delete_when  # type: ignore[union-attr]
    assert (deletes.column, deletes.values) == ("closed", (True,))  # type: ignore[union-attr]
    document["state"]["delete_when"] = {"status": ["gone", "lost"]}
    deletes = read(document).state.delete_when  # type: ignore[union-attr]
    assert (deletes.column, deletes.values) == ("status", ("gone", "lost"))  # type: ignore[union-attr]
    wrongs: list[object] = [
        {"status": 3},
        "status",
        "nowhere",
        "weight",
        {"status": []},
        {"status": 1, "closed": True},
        7,
    ]
    for wrong in wrongs:
        document["state"]["delete_when"] = wrong
        assert all(path.startswith("state.delete_when") for path in problems(document)), wrong


def test_chains_are_kept_where_compaction_is_declared_or_the_mode_needs_them() -> None:
    assert not read(shop()).keeps_chains
    kept = read({**shop(), "compaction": "full"})
    assert kept.keeps_chains
    assert kept.definition_parts().keys() - read(shop()).definition_parts().keys() == {"chains"}
    other = read({**shop(), "compaction": {"strategy": "tiered", "keep_recent": 3, "delta_threshold": 20}})
    assert other.definition_parts() == kept.definition_parts()
    hourly = {"strategy": "time_boundary", "interval": "1 h", "age_threshold": "2 days", "max_chain_length": 400}
    assert read({**shop(), "compaction": hourly}).compaction.interval_us == 3_600_000_000  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("compaction", "expected"),
    [
        ("weekly", "'full', 'tiered', 'time_boundary' or 'adaptive'"),
        ("time_boundary", "an `interval`"),
        ({"strategy": "full", "interval": "1 h"}, "with no other"),
        ({"strategy": "full", "keep_recent": 1}, "no `keep_recent`"),
        ({"background_interval": "6 h"}, "a `background_interval` with `background: true` alone"),
        ({"keep_recent": -1}, "greater than or equal to 0"),
        ({"delta_threshold": 50, "max_chain_length": 20}, "at most max_chain_length"),
        ({"age_threshold": "0 s"}, "greater than zero"),
        ({"keep_recent": 2000, "max_chain_length": 1000}, "below max_chain_length, 1000"),
        ({"strategy": "adaptive", "keep_recent": 20, "delta_threshold": 20, "max_chain_length": 20}, "below max_chain"),
        ({"delta_threshold": 5, "max_chain_length": 5}, "a `keep_recent` below max_chain_length, 5"),
    ],
)
def test_what_compaction_takes_is_checked(compaction: Any, expected: str) -> None:
    ((path, (wanted, _)),) = problems({**shop(), "compaction": compaction}).items()
    assert path.startswith("compaction")
    assert expected in wanted
    without_state = {k: v for k, v in shop().items() if k != "state"}
    assert "compaction" in problems({**without_state, "compaction": "full"})


def test_all_that_is_wrong_with_compaction_is_listed() -> None:
    wrong = {"keep_recent": 2000, "delta_threshold": 100, "max_chain_length": 10, "interval": "1 h"}
    found = problems({**shop(), "compaction": wrong})
    assert set(found) == {"compaction.keep_recent", "compaction.delta_threshold", "compaction.interval"}
    assert read({**shop(), "compaction": {"strategy": "full", "delta_threshold": 5, "max_chain_length": 5}})


def test_reading_sources_imports_neither_spark_nor_airflow() -> None:
    code = (
        "import sys, spark_jobs.sources; "
        "print([m for m in sys.modules if m.startswith(('pyspark', 'airflow', 'spark_jobs.jobs'))])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


def test_what_a_worker_may_hold_is_part_of_no_definition() -> None:
    assert read(shop()).memory.max_bytes == 100 << 20
    larger = read({**shop(), "memory": {"max_bytes": "256 MiB"}})
    assert larger.memory.max_bytes == 256 << 20
    assert larger.definition_parts() == read(shop()).definition_parts()
    refused = problems({**shop(), "memory": {"max_bytes": "1 KiB"}})
    assert "1 MiB or more" in refused["memory.max_bytes"][0]
    shares = read(shop()).memory
    assert (shares.high_water, shares.emergency) == (0.8, 0.95)
    earlier = read({**shop(), "memory": {"high_water": 0.5, "emergency": 0.6}})
    assert earlier.definition_parts() == read(shop()).definition_parts()
    for wrong in ({"high_water": 0.95}, {"high_water": 0}, {"emergency": 1.5}):
        assert "`emergency` above it and at most 1" in problems({**shop(), "memory": wrong})["memory"][0]


def test_limits_of_chunks_are_read_and_no_part_of_the_definition() -> None:
    limits = read(shop()).chunks
    assert (limits.rows, limits.max_bytes, limits.unsorted) == (65_536, 2 << 20, 8_192)
    smaller = read({**shop(), "chunks": {"rows": 4096, "bytes": "384 KiB", "unsorted": 1024}})
    assert (smaller.chunks.rows, smaller.chunks.max_bytes, smaller.chunks.unsorted) == (4096, 384 << 10, 1024)
    assert smaller.definition_parts() == read(shop()).definition_parts()
    for wrong, field, expected in (
        ({"rows": 0}, "chunks.rows", "greater than 0"),
        ({"bytes": "many"}, "chunks.bytes", "a size"),
        ({"rows": 100, "unsorted": 200}, "chunks", "`unsorted` of at most `rows`, 100"),
        ({"max_bytes": "2 MiB"}, "chunks.max_bytes", "one of the keys rows, bytes, unsorted"),
    ):
        assert expected in problems({**shop(), "chunks": wrong})[field][0]


def with_windows(*names: str) -> Any:
    return {name: copy.deepcopy(TUMBLING) for name in names}


@pytest.mark.parametrize(
    ("source", "windows", "at", "table"),
    [
        pytest.param("shop", ["sales", "sales_changes"], "windows.sales_changes", "silver.sales_changes", id="view"),
        pytest.param("shop", ["sales_history", "sales"], "windows.sales", "silver.sales_history", id="history"),
        pytest.param("shop", ["shop_state"], "windows.shop_state", "pins.shop_state", id="pin"),
        pytest.param("shop", ["corrections"], "windows.corrections", "silver.corrections", id="ours"),
        pytest.param("chains", [], "source", "gold.chains", id="source"),
    ],
)
def test_a_name_by_which_a_table_would_be_made_twice_is_refused(
    source: str, windows: list[str], at: str, table: str
) -> None:
    document = {**shop(), "source": source, "windows": with_windows(*windows)}
    with pytest.raises(SourceFileError) as refused:
        parse_source(yaml.safe_dump(document, sort_keys=False), file=f"{source}.yml")
    assert [(p["path"], table in p["found"]) for p in refused.value.problems] == [(at, True)]


def test_sources_that_would_have_one_table_are_told_of_each_other(tmp_path: Path) -> None:
    for source, windows in (("shop", ["sales"]), ("shop_changes", ["sales_causes", "rest"]), ("other", ["takings"])):
        document = {**shop(), "source": source, "windows": with_windows(*windows)}
        (tmp_path / f"{source}.yml").write_text(yaml.safe_dump(document))
    folder = read_sources(tmp_path)
    clashes = {name: [(p.path, p.found) for p in folder.clashes(source)] for name, source in folder.sources.items()}
    assert clashes == {
        "other": [],
        "shop": [
            ("source", "`gold.shop_changes`, of source in shop_changes.yml, too"),
            ("windows.sales", "`silver.sales_causes`, of windows.sales_causes in shop_changes.yml, too"),
        ],
        "shop_changes": [
            ("source", "`gold.shop_changes`, of source in shop.yml, too"),
            ("windows.sales_causes", "`silver.sales_causes`, of windows.sales in shop.yml, too"),
        ],
    }


@pytest.mark.parametrize(
    ("written", "read_as", "digits"),
    [
        ("decimal(18, 2)", "decimal(18, 2)", (18, 2)),
        ("decimal(18,2)", "decimal(18, 2)", (18, 2)),
        ("decimal( 38 , 38 )", "decimal(38, 38)", (38, 38)),
        ("decimal(5)", "decimal(5, 0)", (5, 0)),
    ],
)
def test_a_decimal_has_digits_and_one_spelling(written: str, read_as: str, digits: tuple[int, int]) -> None:
    source = read(changed("columns.weight", written))
    column = source.columns["weight"]
    assert (column.type, column.kind, column.digits) == (read_as, "decimal", digits)
    assert source.definition_parts() == read(changed("columns.weight", {"type": read_as})).definition_parts()


@pytest.mark.parametrize(
    ("written", "expected", "found"),
    [
        ("decimal", "decimal(p, s)", "'decimal'"),
        ("decimal(18, 2", "quotes", "decimal(18, 2"),
        ("decimal(0, 0)", "1 to 38 digits", "decimal(0, 0)"),
        ("decimal(39, 2)", "1 to 38 digits", "decimal(39, 2)"),
        ("decimal(4, 5)", "at most 4 digits after the point", "decimal(4, 5)"),
        ("decimal(4, -1)", "decimal(p, s)", "decimal(4, -1)"),
        ("flaot", "one of int, float, decimal(p, s), string", "did you mean `float`"),
        ("decmial(18, 2)", "one of int", "did you mean `decimal(p, s)`"),
        (7, "one of int", "7"),
    ],
)
def test_a_type_that_is_none_is_refused_with_what_there_is(written: Any, expected: str, found: str) -> None:
    told = problems(changed("columns.weight", {"type": written}))["columns.weight.type"]
    assert expected in told[0]
    assert found in told[1]


def test_decimals_are_summed_by_windows_and_refused_where_doubles_would_round_them() -> None:
    document = changed("columns.amount", "decimal(18, 2)")
    document["state"]["components"] = {"visits": 1}
    sums = {
        "n": "count(amount)", "total": "sum(amount)", "mean": "avg(amount)", "least": "min(amount)",
        "half": "approx_quantile(amount, 0.5)", "spread": "stddev(amount)", "kinds": "count_distinct(amount)",
        "list": "collect(amount, 3)", "first_": "first(amount)",
    }  # fmt: skip
    document["windows"]["sales"]["aggregates"] = sums
    assert set(read(document).windows["sales"].aggregates) == set(sums)
    document["windows"]["sales"]["aggregates"] = {"both": "vector_sum(amount)"}
    document["state"] = {"mode": "upsert", "components": {"amount": "amount"}}
    document["entity"] = "amount"
    told = problems(document)
    assert "sum(…) of each decimal column" in told["windows.sales.aggregates.both"][0]
    assert "a window's sum(…) adds decimals exactly" in told["state.components.amount"][0]
    assert "`amount` of type decimal(18, 2)" in told["entity"][1]


CHECKS: dict[str, tuple[dict[str, Any], str]] = {
    "another kind": ({"kind": "betwen", "column": "amount", "max": 1}, "checks.mine.kind"),
    "no such column": ({"kind": "not_null", "column": "amout"}, "checks.mine.column"),
    "no such table": ({"kind": "row_count", "table": "sale", "min": 1}, "checks.mine.table"),
    "a column of another table": ({"kind": "not_null", "table": "sales", "column": "amount"}, "checks.mine.column"),
    "no bound": ({"kind": "between", "column": "amount"}, "checks.mine"),
    "bounds the wrong way": ({"kind": "between", "column": "amount", "min": 2, "max": 1}, "checks.mine"),
    "a bound of another type": ({"kind": "between", "column": "amount", "min": "low"}, "checks.mine.min"),
    "a fraction of an int": ({"kind": "between", "column": "amount", "min": 0.5}, "checks.mine.min"),
    "a value of another type": ({"kind": "in", "column": "amount", "values": [1, "x"]}, "checks.mine.values.1"),
    "a form of numbers": ({"kind": "matches", "column": "amount", "pattern": "a"}, "checks.mine.column"),
    "a broken form": ({"kind": "matches", "column": "till", "pattern": "("}, "checks.mine.pattern"),
    "a look ahead": ({"kind": "matches", "column": "till", "pattern": "(?=a)"}, "checks.mine.pattern"),
    "freshness of text": ({"kind": "freshness", "column": "till", "within": "1 h"}, "checks.mine.column"),
    "a share beyond 1": ({"kind": "not_null", "column": "amount", "mostly": 1.1}, "checks.mine.mostly"),
    "mostly of a count": ({"kind": "row_count", "min": 1, "mostly": 0.5}, "checks.mine"),
    "quarantine of all": ({"kind": "unique", "columns": "till", "treatment": "quarantine"}, "checks.mine"),
    "quarantine of a window": (
        {"kind": "not_null", "table": "sales", "column": "n", "treatment": "quarantine"},
        "checks.mine",
    ),
    "another treatment": ({"kind": "not_null", "column": "amount", "treatment": "drop"}, "checks.mine.treatment"),
    "another type": ({"kind": "type", "column": "amount", "type": "integer"}, "checks.mine.type"),
    "an unknown key": ({"kind": "not_null", "column": "amount", "most": 1}, "checks.mine.most"),
}


@pytest.mark.parametrize("case", CHECKS)
def test_a_wrong_check_names_itself(case: str) -> None:
    check, path = CHECKS[case]
    found = problems({**shop(), "checks": {"fine": {"kind": "not_null", "column": "till"}, "mine": check}})
    assert len(found) == 1, found
    assert next(iter(found)).startswith(path.rpartition(".")[0] if case in ("an unknown key",) else path), found


def test_a_check_that_quarantines_is_part_of_what_lands_and_no_other_is() -> None:
    plain = read(shop()).definition_parts()
    check = {"kind": "between", "column": "amount", "max": 10}

    def parts(**more: Any) -> dict[str, str]:
        return read({**shop(), "checks": {"mine": {**check, **more}}}).definition_parts()

    assert parts() == parts(treatment="warn") == plain
    quarantines = parts(treatment="quarantine")
    assert {part for part in plain if plain[part] != quarantines[part]} == {"parse"}
    assert parts(treatment="quarantine", severity="info", mostly=0.5, description="high") == quarantines
    assert parts(treatment="quarantine", max=11) != quarantines


def test_the_page_on_source_files_shows_checks_that_read() -> None:
    page = (SHIPPED / "README.md").read_text()
    shown = next(block for block in page.split("```yaml\n")[1:] if block.startswith("checks:")).partition("```")[0]
    columns = {"meter": "string", "at": "timestamp", "load": "int", "heat": "float"}
    window = {"kind": "tumbling", "size": "1 h", "key": "meter", "aggregates": {"n": "count()"}}
    document = {**shop(), "columns": columns, "timelines": ["at"], "entity": "meter", "windows": {"busy_hours": window}}
    del document["state"]
    source = read({**document, **yaml.safe_load(shown)})
    assert len({check.kind for check in source.checks.values()}) == 13


@pytest.mark.parametrize("deadline", ["2 h after hi", "2 h", "120 min  after hi"])
def test_a_deadline_counts_from_the_end_of_the_drop(deadline: str) -> None:
    section = Dag.model_validate({"deadline": deadline, "notify": ["team@example.org"]})
    assert section.deadline_us == 2 * 3_600_000_000


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"deadline": "2 h"}, "`notify` beside `deadline`"),
        ({"deadline": "2 h", "notify": ["a@b.org"], "schedule": "manual"}, "`schedule` is `every`"),
        ({"deadline": "soon", "notify": ["a@b.org"]}, "a duration with its unit"),
        ({"notify": ["the team"]}, "an e-mail address, or a URL"),
        ({"notify": ["file:///etc/passwd"]}, "an e-mail address, or a URL"),
        ({"notify": ["a@b.org\nBcc: c@d.org"]}, "an e-mail address, or a URL"),
    ],
)
def test_wrong_alerts_are_refused_with_what_would_be_right(section: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Dag.model_validate(section)


NEW_YORK = {"timezone": "America/New_York"}


def test_drops_are_of_the_calendar_of_their_time_zone() -> None:
    source = read({**shop(), **NEW_YORK, "start": "2026-03-01"})
    assert (source.drops.calendar, source.drops.every) == ((1, "day"), "1 day of America/New_York")
    assert [source.drops.label(n) for n in (0, 7)] == ["2026-03-01", "2026-03-08"]
    assert source.start_us == 1_772_341_200_000_000  # 05:00 UTC
    assert read({**shop(), **NEW_YORK, "start": "2026-03-01T05:00:00Z"}).drops == source.drops
    monthly = read({**shop(), "every": "1 month"})
    assert monthly.drops.calendar == (1, "month")
    hourly = {"path": "shop/{date}/{hour}-{minute}/*", "format": "ndjson"}
    assert read({**shop(), "every": "5 min", "landing": hourly}).drops.every == "5 minutes"


def test_a_zone_changes_the_definition_of_drops_and_nothing_changes_where_there_is_none() -> None:
    plain = read(shop()).definition_parts()
    assert read({**shop(), "timezone": "UTC"}).definition_parts() == plain
    waits = {**shop(), "dag": {"after": ["till"]}, "landing": {**shop()["landing"], "wait": "2 h"}}
    assert read(waits).definition_parts() == plain
    other = read({**shop(), **NEW_YORK}).definition_parts()
    assert {name for name in plain if plain[name] != other[name]} == {"drops"}


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ({"timezone": "Mars/Olympus"}, "timezone", ""),
        (
            {**NEW_YORK, "every": "1 h", "landing": {"path": "shop/{date}/{hour}", "format": "ndjson"}},
            "timezone",
            "no hour comes twice",
        ),
        ({**NEW_YORK, "start": "2026-03-01T00:00:00Z"}, "start", "midnight of America/New_York"),
        ({"every": "1 month", "start": "2026-03-02"}, "start", "first day of a month"),
        ({"every": "0 months"}, "every", "a count from 1"),
        ({"dag": {"schedule": "manual", "after": ["till"]}}, "dag", "`schedule` is `every`"),
        ({"landing": {"path": "shop/{date}", "format": "ndjson", "wait": "0 s"}}, "landing.wait", "greater than zero"),
    ],
)
def test_drops_that_would_have_no_name_of_their_own_are_refused(
    change: dict[str, Any], path: str, expected: str
) -> None:
    found = problems({**shop(), **change})
    assert list(found) == [path]
    assert expected in found[path][0]
