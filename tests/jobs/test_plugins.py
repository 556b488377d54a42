"""A team's own aggregate and format, from a folder of Python files: through a run, in workers, changed and broken."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.definitions.calls import PluginFailed, kernel_aggregate
from spark_jobs.definitions.versions import DefinitionChanged
from spark_jobs.sources import Source, find_source
from spark_jobs.sources.problems import SourceFileError
from tests.jobs.harness import SOURCE, Reading, Session, run, write_lines, write_source
from tests.support.distribution import distribute_all

EXAMPLES = Path(__file__).parents[1] / "examples" / "plugins"
WITH_PLUGINS = SOURCE.replace("format: ndjson", "format: fixed_width").replace(
    "aggregates: {n: count(), total: sum(load)}", 'aggregates: {n: count(), total: sum(load), divisor: "gcd(load)"}'
).replace(", mean: avg(heat)", "").replace(", heat: float", "")  # fmt: skip
READINGS = [Reading(0, minute, meter, 6 * minute) for meter in "ab" for minute in (10, 15, 35, 400, 405)]


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a team's plugins"
    shutil.copytree(EXAMPLES, folder)
    monkeypatch.setenv("TIDEMARK_PLUGINS", str(folder))
    return folder


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path, plugins: Path) -> Settings:
    update = {"home": tmp_path, "landing": tmp_path / "landing", "plugins": plugins}
    return write_source(spark_settings.model_copy(update=update), WITH_PLUGINS)


def meters(tmp_path: Path) -> Source:
    (tmp_path / "meters.yml").write_text(WITH_PLUGINS)
    return find_source(tmp_path, "meters")


def line(reading: Reading) -> str:
    from datetime import timedelta

    from tests.jobs.harness import START

    at = START + timedelta(minutes=reading.minute)
    when = f"{at:%Y-%m-%dT%H:%M:%SZ}"
    return f"{reading.identity:<8.8}{reading.meter:<4}{when:<20}{when:<20}{reading.load:<8}"


def divisors(lake: Session) -> dict[tuple[str, int], int]:
    rows = lake.sql(
        "SELECT meter, hour(window_start) * 60 + minute(window_start) AS minute, divisor FROM silver.shifts"
    )
    return {(row.meter, row.minute): row.divisor for row in rows.collect()}


def expected(readings: list[Reading]) -> dict[tuple[str, int], int]:
    sessions: dict[tuple[str, int], list[int]] = {}
    opened: dict[str, tuple[int, int]] = defaultdict(lambda: (-(10**6), 0))
    for reading in sorted(readings, key=lambda r: r.minute):
        last, first = opened[reading.meter]
        first = first if reading.minute - last <= 90 else reading.minute
        opened[reading.meter] = reading.minute, first
        sessions.setdefault((reading.meter, first % 1440), []).append(reading.load)
    return {key: math.gcd(*loads) for key, loads in sessions.items()}


@pytest.mark.turns
@pytest.mark.spark
@pytest.mark.parametrize("here", [True, False])
def test_a_run_reads_and_computes_by_plugins(
    lake: SparkSession, home: Settings, plugins: Path, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not here:
        distribute_all(monkeypatch)
    write_lines(home, 0, [*map(line, READINGS), "too short"])
    run(lake, home, 0, 0)
    assert divisors(lake) == expected(READINGS)
    (reject,) = lake.table("bronze.quarantine").collect()
    assert (reject.line, "too short" in reject.raw) == (11, True)
    late = Reading(1, 12, "a", 7)
    write_lines(home, 1, [line(late)])
    run(lake, home, 1, 1)
    assert divisors(lake) == expected([*READINGS, late])
    assert audit(home, find_source(home.sources, "meters"), lake).failed == []

    text = (plugins / "divisors.py").read_text()
    (plugins / "divisors.py").write_text(text.replace("pa.array(state[0])", "pa.array(-state[0])"))
    write_lines(home, 2, [line(Reading(2, 3000, "b", 4))])
    with pytest.raises(DefinitionChanged, match=r"another window\.shifts"):
        run(lake, home, 2, 2)
    run(lake, home, 2, 2, accept_definition=True)
    assert divisors(lake) == {k: -v for k, v in expected([*READINGS, late, Reading(2, 3000, "b", 4)]).items()}


def test_a_parser_that_raises_rejects_its_file_alone(lake: Session, home: Settings, plugins: Path) -> None:
    text = (plugins / "fixed_width.py").read_text()
    (plugins / "fixed_width.py").write_text(text.replace("text = line.decode()", 'text = line.decode("ascii")'))
    write_lines(home, 0, list(map(line, READINGS)))
    write_lines(home, 0, ["ü" * 30], name="b.ndjson")
    run(lake, home, 0, 0)
    assert divisors(lake) == expected(READINGS)
    (reject,) = lake.table("bronze.quarantine").collect()
    assert (reject.rule, reject.file.endswith("b.ndjson")) == ("parser_failed", True)
    assert "fixed_width.py" in reject.reason and "UnicodeDecodeError" in reject.reason


def test_a_process_without_the_folder_computes_what_travelled_to_it(tmp_path: Path, plugins: Path) -> None:
    source = meters(tmp_path)
    (tmp_path / "pickled").write_bytes(cloudpickle.dumps(source))
    program = """
import pickle, sys, pyarrow as pa
from spark_jobs.definitions.calls import kernel_aggregate
source = pickle.load(open(sys.argv[1], "rb"))
call = source.windows["shifts"].aggregates["divisor"]
print(kernel_aggregate("divisor", call).output_type(pa.int64()), source.landing.form.plugin.file)
print(source.definition_parts()["window.shifts"])
"""
    shutil.rmtree(plugins)
    environment = {"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "pickled")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["int64", "fixed_width.py", source.definition_parts()["window.shifts"]], done.stderr


def test_a_file_that_cannot_be_imported_is_named_where_it_is_missed(tmp_path: Path, plugins: Path) -> None:
    (plugins / "divisors.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(SourceFileError) as refusal:
        meters(tmp_path)
    assert "divisors.py" in str(refusal.value) and "ModuleNotFoundError" in str(refusal.value)
    plain = SOURCE.replace("meters", "plain")
    (tmp_path / "plain.yml").write_text(plain)
    assert find_source(tmp_path, "plain").name == "plain", "other sources do without it"


@pytest.mark.parametrize(
    ("declared", "said"),
    [("sum(column)", "no other aggregate has, found sum"), ("No Call", "expected a call of lowercase letters")],
)
def test_a_declaration_that_means_nothing_is_refused(declared: str, said: str, tmp_path: Path, plugins: Path) -> None:
    text = (plugins / "divisors.py").read_text()
    (plugins / "divisors.py").write_text(text.replace("gcd(column)", declared))
    with pytest.raises(SourceFileError) as refusal:
        meters(tmp_path)
    assert said in str(refusal.value)


def test_what_an_aggregate_raises_names_its_file(tmp_path: Path, plugins: Path) -> None:
    text = (plugins / "divisors.py").read_text()
    (plugins / "divisors.py").write_text(text.replace("return pa.int64()", "return pa.int65()"))
    call: Any = meters(tmp_path).windows["shifts"].aggregates["divisor"]
    import pyarrow as pa

    with pytest.raises(PluginFailed) as failure:
        kernel_aggregate("divisor", call).output_type(pa.int64())
    assert "divisors.py" in failure.value.sentence() and "int65" in failure.value.sentence()


def test_a_source_file_cannot_name_a_plugin_by_a_key(tmp_path: Path, plugins: Path) -> None:
    (tmp_path / "meters.yml").write_text(WITH_PLUGINS.replace("format: fixed_width", "format: ndjson, plugin: x.py"))
    with pytest.raises(SourceFileError, match="unknown key `plugin`"):
        find_source(tmp_path, "meters")
