"""The command line's manners: exit codes, refusals without tracebacks, one JSON document, quick help."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from spark_jobs.cli.app import build_app, run
from spark_jobs.cli.commands import erase as erase_command
from spark_jobs.cli.commands.run import for_people
from spark_jobs.cli.output import short_text, show
from spark_jobs.cli.rows import Fetched, distinct, emit_rows, most_rows, view_of
from spark_jobs.cli.topics import FIRST_LINE, OTHERS, TOPICS, _first_line, by_topic
from spark_jobs.config import Settings, load_settings
from spark_jobs.erasure import erase as erase_module
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.pipeline import RunReport
from spark_jobs.reads.chain_metrics import chain_metrics
from spark_jobs.server.connect_client import connect_socket
from spark_jobs.sources import parse_source
from spark_jobs.statements import statements

METERS = """
source: meters
start: 2026-01-01
landing: {format: csv, path: "{date}.csv"}
columns: {meter: string, at: timestamp}
timelines: {measured: at}
event_time: measured
entity: meter
"""


@pytest.fixture
def here(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The command line of an installation where nothing runs."""
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TIDEMARK_CONNECT_PORT", "1")
    return settings


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["no-such-command"]) == 2
    assert "no-such-command" in capsys.readouterr().err


def test_a_wrong_setting_is_wrong_usage_and_names_the_variable(
    here: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_THRIFT_PORT", "many")
    assert run(["status"]) == 2
    output = capsys.readouterr()
    assert "TIDEMARK_THRIFT_PORT='many'" in output.err
    assert output.out == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "either --entity or --where"),
        (["--entity", "a", "--where", "meter = 'a'"], "either --entity or --where"),
        (["--where", "meter > 'a'"], "one literal"),
        (["--where", "owner = 'a'"], "meters declares meter, at"),
    ],
)
def test_what_is_erased_is_said_in_one_way(
    here: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    said: str,
) -> None:
    monkeypatch.setenv("TIDEMARK_SOURCES", str(tmp_path))
    (tmp_path / "meters.yml").write_text(METERS)
    assert run(["erase", "meters", "--because", "asked", *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_status_fails_where_nothing_runs(here: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status"]) == 1
    assert "tidemark up" in capsys.readouterr().out


def test_status_as_json_is_one_document(here: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["running"], document["home"]) == (False, False, str(here.home))


def test_down_is_safe_where_nothing_runs(here: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["down", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ran": False, "leftovers": [], "lingers": False}


def test_a_refusal_says_expected_found_and_next_without_a_traceback(
    here: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sql", "SELECT 1"]) == 1
    text = capsys.readouterr().err
    assert "server_unreachable" in text
    assert all(word in text for word in ("expected", "found", "next", "tidemark up"))
    assert "Traceback" not in text


def test_a_refusal_as_json_carries_its_code_and_facts(here: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "SELECT 1", "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    socket = str(connect_socket(load_settings()))
    assert (error["code"], error["address"]) == ("server_unreachable", socket)


@pytest.mark.parametrize("text", ["yesterday", "2013-02-30", "0001-01-01T00:00+14:00", "9999-12-31T23:59-01:00"])
def test_what_is_no_instant_is_wrong_usage(here: Settings, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", "flights", "--entity", "N1", "--timeline", "departed", "--latest-at", text]) == 2
    assert "a date such as 2013-01-07" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["pin", "Before-the-move"], "a pin's name"),
        (["pin", "before_"], "a pin's name"),
        (["unpin", "before__the_move"], "a pin's name"),
        (["pin", "before", "--at", "noon"], "a date such as"),
        (["chains", "flights"], "whose chains are kept"),
        (["history", "flights", "N1"], "whose chains are kept"),
        (["rollback", "flights", "N1", "--to", "2013-01-01", "--at", "2013-01-02"], "whose chains are kept"),
    ],
)
def test_what_needs_no_server_to_be_refused_is_refused_without_one(
    here: Settings, command: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_change_events_have_no_rows_that_a_rollback_could_print(
    here: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_SOURCES", str(tmp_path))
    events = METERS.replace(
        '{format: csv, path: "{date}.csv"}', '{format: ndjson, path: "{date}.json", envelope: debezium}'
    )
    kept = "state: {mode: upsert, components: {load: load}}\n"
    (tmp_path / "meters.yml").write_text(events.replace("at: timestamp}", "at: timestamp, load: float}") + kept)
    asked = ["--to", "2026-01-01", "--at", "2026-01-02", "--json"]
    assert run(["rollback", "meters", "a", *asked]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "rollback_not_expressible"
    assert "change events (debezium)" in error["message"]


def test_the_chains_of_a_source_that_keeps_none_are_refused_before_anything_is_read() -> None:
    source = parse_source(METERS, file="meters.yml")
    with pytest.raises(ParameterError, match="whose chains are kept"):
        chain_metrics(None, source)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [[], ["--from", "2013-01-01"], ["--latest-at", "2013-01-01", "--to", "2013-01-02"]])
def test_a_query_asks_for_a_range_or_for_one_time(
    here: Settings, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["query", "flights", "--entity", "N1", "--timeline", "departed", *asked]) == 2
    assert "either --from and --to, or --latest-at" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["windows", "flights", "departure_delays", "--as-of", "soon"], "'soon'"),
        (["windows", "flights", "departure_delays", "--as-of", "0001-01-01T00:00+01:00"], "of the years 1 to 9999"),
        (["windows", "flights", "arrivals"], "one of the windows departure_delays"),
        (["windows", "ships", "arrivals"], "one of the sources flights, weather"),
        (["windows", "flghts", "arrivals"], "did you mean `flights`?"),
        (["windows", "flights", "departure_delay"], "did you mean `departure_delays`?"),
        (["why", "flights", "silver.rotation", "N1"], "did you mean `rotations`?"),
        (["state", "flights", "--at", "9999-12-31T23:59-01:00"], "of the years 1 to 9999"),
        (["trace", "hold", "flights", "audit", "--at", "soon", "--for", "2 hours"], "'soon'"),
        (["trace", "hold", "flights", "audit", "--at", "2013-01-01", "--for", "2"], "a number and a unit"),
        (["why", "flights", "arrivals", "JFK"], "one of the tables silver.departure_delays"),
        (["why", "flights", "departure_delays", "JFK"], "a value for each of origin, window_start"),
        (["why", "flights", "departure_delays", "JFK", "soon"], "an instant such as"),
        (["plan", "flights", "--from", "2013-01-07", "--to", "2013-01-01"], "swap both ends"),
        (["plan", "flights", "--from", "2012-12-31", "--to", "2013-01-01"], "the source's start"),
        (["plan", "flights", "--from", "2013-01-01", "--to", "2013-01-01", "--save", "/nowhere/p"], "/nowhere"),
        (["plan", "flights", "--from", "2013-01-01", "--to", "2013-01-01", "--retract", "--replay"], "found both"),
        (["report", "flights", "--out", "/nowhere/r.html"], "/nowhere"),
        (["report", "ships"], "one of the sources flights, weather"),
        (["report"], "a source, --site DIR or --dbt-docs"),
        (["report", "flights", "--site", "pages"], "a source, --site DIR or --dbt-docs"),
        (["backfill", "flights", "--from", "2013-01-07", "--to", "2013-01-01", "--dry-run"], "swap both ends"),
        (["plan", "flights", "--from", "2013-01-07T12:00", "--to", "2013-01-08"], "within the drop 2013-01-07"),
        (["run", "flights", "--from", "2013-01-07", "--to", "2013-01-08T01:00"], "2013-01-07 or 2013-01-09"),
        (["retract", "flights"], "--drop or --file"),
        (["query", "flights", "--entity", "N1", "--latest-at", "2013-01-02"], "name one of scheduled, departed, known"),
        (["why", "flights", "marts.airport_delay", "JFK"], "a mart whose rows are those of one table of flights"),
        (["run", "flights", "--each"], "--from, or --plan"),
        (["backfill", "flights", "--from", "2013-01-01", "--to", "2013-01-02", "--each", "--batch", "2"], "found both"),
        (["retract", "flights", "--drop", "2013-01-07T12:00"], "within the drop 2013-01-07"),
        (["quarantine", "list", "flights", "--drop", "2013-01-07T12:00"], "within the drop 2013-01-07"),
        (["backfill", "flights", "--from", "2013-01-07T12:00", "--to", "2013-01-08"], "within the drop 2013-01-07"),
        (["backfill", "flights", "--from", "2013-01-07", "--to", "2013-01-01"], "swap both ends"),
    ],
)
def test_what_can_not_be_meant_is_refused_before_the_server_is_asked(
    here: Settings, asked: list[str], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(asked) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert found in text
    assert "next" in text


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"{}", b"[]"])
def test_a_file_that_holds_no_plan_is_refused(
    here: Settings, tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_bytes(content)
    assert run(["run", "flights", "--plan", str(path), "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["path"]) == ("plan_unreadable", str(path))


@pytest.mark.parametrize("command", [["list"], ["show", "--all"], ["replay", "--drop", "2013-01-02"]])
def test_quarantine_needs_a_server_and_says_so(
    here: Settings, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["quarantine", command[0], "flights", *command[1:], "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "server_unreachable"


@pytest.mark.slow
@pytest.mark.parametrize("drop", ["../../etc", "2013-01-32", "flights/2013-01-01"])
def test_a_drop_is_a_date_and_no_path(here: Settings, drop: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["retract", "flights"], ["quarantine", "list", "flights"]):
        assert run([*command, "--drop", drop]) == 2
        assert drop in capsys.readouterr().err
    assert run(["retract", "flights"]) == 2
    assert "--drop" in capsys.readouterr().err


def test_debug_lets_the_traceback_through(here: Settings) -> None:
    from spark_jobs.server.errors import ServerUnreachable

    with pytest.raises(ServerUnreachable):
        run(["--debug", "sql", "SELECT 1"])


@pytest.mark.slow
def test_the_doctor_fails_and_says_what_to_do(
    here: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMARK_JARS", str(tmp_path))
    assert run(["doctor", "--json"]) == 1
    findings = {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert findings["jars"]["verdict"] == "wrong"
    assert findings["jars"]["do"] == "run `make setup`"
    assert findings["pyspark"]["verdict"] == "ok"


@pytest.mark.slow
def test_the_doctor_lists_source_files_with_problems(
    here: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "meters.yml").write_text(METERS)
    (tmp_path / "broken.yml").write_text("source: broken\n")
    monkeypatch.setenv("TIDEMARK_SOURCES", str(tmp_path))
    run(["doctor", "--json"])
    findings = {finding["what"]: finding["verdict"] for finding in json.loads(capsys.readouterr().out)}
    assert {what: verdict for what, verdict in findings.items() if "source" in what} == {
        "source file broken.yml": "wrong"
    }


@pytest.mark.slow
def test_spark_conf_prints_the_path_of_a_private_file(here: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spark-conf"]) == 0
    path = Path(capsys.readouterr().out.strip())
    content = path.read_text()
    assert "spark.sql.variable.substitute false" in content
    assert "spark.connect.authenticate" not in content
    assert "secret" not in content
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from spark_jobs.cli.app import run; run(['--help']);"
        "print([name for name in ('pyspark', 'airflow', 'pandas', 'great_expectations') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


def test_the_help_has_a_topic_and_one_line_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    group = typer.main.get_command(build_app())
    assert isinstance(group, typer.core.TyperGroup)
    commands = group.commands
    assert OTHERS not in by_topic(commands)
    assert sorted(name for names in TOPICS.values() for name in names) == sorted(commands)
    assert {
        name: command.help for name, command in commands.items() if not 0 < len(_first_line(command)) <= FIRST_LINE
    } == {}
    assert run(["--help"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert all(len(line) <= 80 for line in lines)
    begins = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith(("   ", "  -"))]
    assert begins == [name for names in TOPICS.values() for name in names]
    assert [topic for topic in TOPICS if topic not in lines] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' AS a; SELECT \";\"", ["SELECT ';' AS a", 'SELECT ";"']),
        ("SELECT 'it\\'s; fine'; SELECT 2", ["SELECT 'it\\'s; fine'", "SELECT 2"]),
        ("SELECT `a;b`", ["SELECT `a;b`"]),
        ("SELECT 1 -- one; two\n; -- only; a comment\n", ["SELECT 1 -- one; two"]),
        ("/* a; b */ SELECT 1;/* end */", ["/* a; b */ SELECT 1"]),
        ("SELECT 1; SELECT 2 -- the last line", ["SELECT 1", "SELECT 2 -- the last line"]),
        (" ;; \n", []),
    ],
)
def test_statements_are_split_outside_quotes_and_comments(text: str, expected: list[str]) -> None:
    assert statements(text) == expected


@given(st.lists(st.sampled_from(["a", "b", "a_2", "a_2_2"]), max_size=8))
def test_distinct_names_lose_no_column_and_keep_first_uses(names: list[str]) -> None:
    result = distinct(names)
    assert len(set(result)) == len(names)
    assert all(made == name or made.startswith(f"{name}_") for made, name in zip(result, names, strict=True))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2013, 1, 1, 5, tzinfo=UTC), "2013-01-01T05:00:00Z"),
        (date(2013, 1, 1), "2013-01-01"),
        (Decimal("1.20"), "1.20"),
        (b"\x00\xff", "00ff"),
        (0.1 + 0.2, "0.30000000000000004"),
        (True, "true"),
        ([1, None], "[1, null]"),
        ({"t": datetime(2013, 1, 1, tzinfo=UTC)}, '{"t": "2013-01-01T00:00:00Z"}'),
    ],
)
def test_a_value_reads_the_same_on_every_machine(value: object, expected: str) -> None:
    assert short_text(value) == expected


class Frame:
    """As much of a DataFrame as fetching needs."""

    def __init__(self, content: pa.Table) -> None:
        self.content = content

    def limit(self, rows: int) -> Frame:
        return Frame(self.content.slice(0, rows))


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Callable[[pa.Table, int], Fetched]:
    """Fetching from a table that comes in batches of three rows."""
    from spark_jobs.cli import rows

    def batches(frame: Frame) -> tuple[pa.Schema, Iterator[pa.Table]]:
        cuts = range(0, frame.content.num_rows, 3)
        return frame.content.schema, (frame.content.slice(cut, 3) for cut in cuts)

    monkeypatch.setattr(rows, "_batches", batches)
    monkeypatch.setattr(rows, "IN_MEMORY_BYTES", 100)
    frame: Callable[[pa.Table], Any] = Frame
    return lambda content, limit: rows.fetch(frame(content), limit)


@pytest.mark.parametrize(("width", "are_records"), [(32, False), (31, True)])
def test_rows_that_are_wider_than_the_terminal_are_records(
    fetched: Callable[[pa.Table, int], Fetched], width: int, are_records: bool
) -> None:
    late = pa.field("late_by", pa.int64()).with_metadata({"comment": "Microseconds from its end."})
    schema = pa.schema([late, pa.field("site", pa.string()), pa.field("m", pa.list_(pa.int64()))])
    found = fetched(pa.table([[61_000_000], [None], [[1, 2, 3, 4]]], schema=schema), 0)
    console = Console(width=width, record=True, file=StringIO())
    console.print(view_of(found))
    shown_lines = console.export_text().rstrip().split("\n")
    assert all(len(line) <= width for line in shown_lines)
    assert "late_by (µs)" in shown_lines[0] + shown_lines[1]
    assert {each for line in shown_lines for each in line.split()} >= {"61000000", "NULL", "site", "m"}
    assert (shown_lines[0].strip() == "row 1") is are_records


def test_a_result_with_repeated_names_keeps_every_value(
    fetched: Callable[[pa.Table, int], Fetched], capsys: pytest.CaptureFixture[str]
) -> None:
    emit_rows(True, fetched(pa.table([[1], [2]], names=["n", "n"]), 0))
    document = json.loads(capsys.readouterr().out)
    assert document == {"columns": ["n", "n_2"], "rows": [{"n": 1, "n_2": 2}], "truncated": False}


@pytest.mark.parametrize("count", [0, 1, 3, 7, 2000])
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 6, 7, 8, 1000])
def test_programs_get_all_rows_or_are_told_by_a_field_and_the_exit_code(
    fetched: Callable[[pa.Table, int], Fetched], capsys: pytest.CaptureFixture[str], count: int, limit: int
) -> None:
    content = pa.table({"n": pa.array(range(count), pa.int64()), "t": pa.array([None] * count, pa.string())})
    result = fetched(content, limit)
    cut = 0 < limit < count
    with pytest.raises(typer.Exit) if cut else nullcontext() as ended:
        emit_rows(True, result, key="records", about={"source": "meters"})
    document = json.loads(capsys.readouterr().out)
    expected = [{"n": n, "t": None} for n in range(limit if cut else count)]
    assert document == {"source": "meters", "columns": ["n", "t"], "records": expected, "truncated": cut}
    assert not cut or (ended is not None and ended.value.exit_code == 1)


def test_why_says_how_many_deltas_there_are_and_how_many_it_lists() -> None:
    from spark_jobs.cli.commands.why import _title
    from spark_jobs.reads.why import Why

    told = {
        (n, listed): _title(Why("t", {}, deltas=[{}] * listed, n_deltas=n))
        for n, listed in ((1976, 100), (3, 3), (1, 1))
    }
    assert told == {
        (1976, 100): "the 1,976 deltas behind it; the first 100 are listed",
        (3, 3): "the 3 deltas behind it",
        (1, 1): "the delta behind it",
    }


def run_report(**land: Any) -> RunReport:
    counts = dict.fromkeys(("files", "rows", "rejects", "duplicates", "rows_back", "known_files"), 0)
    stages = [
        {"stage": "land", "seconds": 1.0, "commits": 1, **counts, "empty_drops": [], **land},
        {"stage": "publish", "seconds": 0.5, "commits": 0, "moved": bool(land.get("empty_drops"))},
    ]
    return RunReport("meters", "cli-1", stages, {"connect": 0.1})


@pytest.mark.parametrize(
    ("land", "line"),
    [
        ({}, "nothing came; nothing changed"),
        ({"known_files": 2}, "no new file: 2 files unchanged since they landed; nothing changed"),
        ({"empty_drops": ["2024-01-02"]}, "nothing came in 2024-01-02: taken as empty; published up to their end"),
        (
            {"empty_drops": [f"2024-01-{day:02}" for day in range(2, 32)]},
            "nothing came in 30 drops from 2024-01-02 to 2024-01-31: taken as empty; published up to their end",
        ),
    ],
)
def test_a_run_without_files_says_so_in_one_line(
    capsys: pytest.CaptureFixture[str], land: dict[str, int | list[str]], line: str
) -> None:
    show(for_people(run_report(**land)))
    assert capsys.readouterr().out.splitlines()[0] == line


def test_a_run_that_only_built_marts_says_which_and_that_their_tests_passed(capsys: pytest.CaptureFixture[str]) -> None:
    report = run_report(known_files=1)
    report.stages[-1]["marts"] = "marts.load_by_meter built in 2.1 s; 2 tests passed"
    show(for_people(report))
    assert capsys.readouterr().out.splitlines()[0] == (
        "no new file: 1 file unchanged since it landed; marts.load_by_meter built in 2.1 s; 2 tests passed"
    )


def test_a_run_is_reported_measure_by_measure(capsys: pytest.CaptureFixture[str]) -> None:
    show(for_people(run_report(files=1, rows=5, empty_drops=["2024-01-02"])))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == ["stage seconds commits measure value", "land 1.0 1 files 1", "rows 5"]
    assert "rejected records 0" in lines
    assert "publish 0.5 0 new rows published yes" in lines
    assert "nothing came in 2024-01-02: taken as empty" in lines


def test_a_run_says_which_published_windows_it_restated(capsys: pytest.CaptureFixture[str]) -> None:
    report = run_report(files=1, rows=5)
    report.stages[-1]["restated"] = {"silver.hourly": 3}
    show(for_people(report))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "windows restated in silver.hourly 3" in lines


def test_only_people_have_a_limit_that_nobody_asked_for() -> None:
    assert [most_rows(None, as_json=as_json) for as_json in (True, False)] == [0, 100]
    assert [most_rows(5, as_json=as_json) for as_json in (True, False)] == [5, 5]


def test_each_step_of_an_erasure_has_a_sentence() -> None:
    steps = re.findall(r'on_step\("(\w+)"\)', Path(erase_module.__file__).read_text())
    assert steps == [*erase_command.STEPS]
