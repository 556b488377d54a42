"""What a run costs beside many other sources: wall seconds of commands on one source beside 0, 99 and 299 others.

`python tests/benchmarks/many_sources.py [--beside 0 99 299]` makes an installation without Airflow in a temporary
folder and runs one source. The others are copies of it: source file, tables, rows in shared tables and names, made by
what `tidemark source rename` is made of. What is timed are commands as a user starts them, the median of three where a
command may be repeated.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pyarrow.compute as pc

from spark_jobs.definitions.catalog import name_definitions
from spark_jobs.jobs.in_force import take_fingerprints
from spark_jobs.lifecycle.source_parts import SHARED, histories, own_tables
from spark_jobs.session import open_session
from spark_jobs.sources import load_source
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.fingerprints import to_json
from spark_jobs.storage.delta.rewriting import copy_partition
from spark_jobs.storage.delta.table_notes import properties
from spark_jobs.storage.descriptions.schema import IDENTITY, Table
from spark_jobs.storage.descriptions.sql import literal, qualified
from spark_jobs.storage.descriptions.tables import PUBLISHED
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.benchmarks.commands import seconds
from tests.benchmarks.year import METERS, START, write_day
from tests.installations import Installation

FIRST, FRESH = "meters_0", "fresh"


def described(name: str) -> str:
    """The source file of a source."""
    return METERS.replace("source: meters", f"source: {name}").replace("hourly:", f"{name}_hourly:")


def label(day: int) -> str:
    return f"{START + timedelta(days=day)}"


def run(installation: Installation, name: str, day: int) -> float:
    """Seconds of a run of one drop."""
    return seconds(installation, ("run", name, "--from", label(day), "--to", label(day)))


def copy_source(installation: Installation, lake: SparkLake, name: str) -> None:
    """Give the lake another source that has what the first one has."""
    file = installation.settings.sources / f"{name}.yml"
    file.write_text(described(name))
    pairs = [*zip(own_tables(FIRST), own_tables(name), strict=True)]
    history = Table("silver", f"{name}_hourly_history", "", ())
    pairs += [(table, history) for table in histories(lake, FIRST)]
    for table, copy in pairs:
        lake.catalog.copy_folder(table, copy)
    identity = (
        f"{literal(IDENTITY)} = {literal(properties(lake.folder.handle(history))[IDENTITY].replace(FIRST, name))}"
    )
    lake.catalog.define(f"ALTER TABLE {qualified('silver', history.table)} SET TBLPROPERTIES ({identity})")
    leases = installation.settings.home / "leases"
    shutil.copy(leases / f"{FIRST}.lease", leases / f"{name}.lease")
    for table in SHARED:
        if lake.folder.is_stored(table.database, table.table):
            copy_partition(lake.destination(table), "source", FIRST, name)
    source = load_source(file)
    (row,) = lake.records(PUBLISHED, pc.field("source") == FIRST)
    tables = to_json(take_fingerprints(lake, source, {}))
    lake.replace_records(PUBLISHED, [{**row, "source": name, "tables": tables}], Fence(name, row["token"]))
    for statement in name_definitions(source):
        if name in statement:
            lake.catalog.define(statement)


def copy_sources(installation: Installation, numbers: range) -> float:
    """Make the sources of these numbers; seconds for each."""
    spark, begun = open_session(installation.settings, "copies"), time.monotonic()
    for number in numbers:
        copy_source(installation, SparkLake(spark), f"meters_{number}")
    return (time.monotonic() - begun) / max(len(numbers), 1)


def figures(installation: Installation, day: int) -> dict[str, float]:
    """Seconds by command."""
    found = {"run of a day": statistics.median(run(installation, FIRST, day + i) for i in range(3))}
    for name, command in {
        "run with nothing new": ("run", FIRST, "--from", label(day), "--to", label(day)),
        "plan": ("plan", FIRST, "--from", label(day + 3), "--to", label(day + 3)),
        "status": ("status",),
        "doctor": ("doctor",),
    }.items():
        found[name] = statistics.median(seconds(installation, command) for _ in range(3))
    (installation.settings.sources / f"{FRESH}.yml").write_text(described(FRESH))
    found["first run of a source"] = run(installation, FRESH, 0)
    found["drop of a source"] = seconds(installation, ("source", "drop", FRESH, "--purge"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=int, nargs="+", default=[0, 99, 299])
    beside = parser.parse_args().beside
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        (home / "sources").mkdir(parents=True)
        installation = Installation(home, sources=home / "sources")
        (home / "sources" / f"{FIRST}.yml").write_text(described(FIRST))
        for day in range(4 * len(beside) + 4):
            write_day(installation.settings.landing_folder, day, 100)
        with installation.serving("--no-airflow"):
            run(installation, FIRST, 0)
            made, table = 0, {}
            for turn, others in enumerate(beside):
                each = copy_sources(installation, range(made + 1, others + 1))
                made = max(made, others)
                print(f"{others} others, {each:.1f} s each to make", flush=True)
                table[others] = figures(installation, 1 + 3 * turn)
                print(others, {name: round(took, 2) for name, took in table[others].items()}, flush=True)
    print("| seconds | " + " | ".join(f"beside {others}" for others in beside) + " |")
    print("| --- |" + " ---: |" * len(beside))
    for name in table[beside[0]]:
        print(f"| {name} | " + " | ".join(f"{table[others][name]:.1f}" for others in beside) + " |")
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
