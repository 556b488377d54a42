"""Each damage of a stored lake is named with its table and the way back, by doctor and by whoever is to go on from it.

No JVM is started: a lake that an earlier release made is given what runs of now leave beside it. For each damage a copy
is damaged and asked.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import ArrayType, Field, PrimitiveType

from spark_jobs.audit.examination import examine_lake
from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.jobs.in_force import TablesChanged, in_force, take_fingerprints
from spark_jobs.sources import load_source, read_sources
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.delta.checksums import write_file_checksums
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.records import arrow_records, replace_records, widen_records
from spark_jobs.storage.delta.table_notes import column_types
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.people_tables import ERASURES
from spark_jobs.storage.descriptions.quality_tables import METRICS, QUALITY
from spark_jobs.storage.descriptions.tables import PUBLISHED as PUBLISHED_TABLE
from spark_jobs.storage.lakes.stored_lake import StoredLake
from tests.lakes import made

WINDOWS, STATES, LEDGER = "silver.db/hourly_history", "gold.db/state_history", "bronze.db/files"
CHUNKS, TRACE = "bronze.db/meters_chunks", "trace.db/meters_updates"
FRONTIERS, PUBLISHED = "trace.db/frontiers", "trace.db/published"
RECORDS = (LEDGER, FRONTIERS, PUBLISHED)
Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a lake that two sources share, as its runs would have left it: of an earlier release, but each file
    has its checksum, each publication the fingerprints of its tables. Nobody changes it."""
    home = tmp_path_factory.mktemp("kept")
    with tarfile.open(made.HERE / f"{made.LAKES[-1]}.tar.xz") as archive:
        archive.extractall(home, filter="data")
    lake = StoredLake(home / "lake")
    for table in (*QUALITY, ERASURES):
        if not lake.folder.is_stored(table.database, table.table):
            write_deltalake(lake.folder.handle(table).uri, arrow_records(table, []), partition_by=[*table.partitions])
    published, column = Path(lake.folder.handle(PUBLISHED_TABLE).uri), PUBLISHED_TABLE.columns[-1]
    if column.name not in column_types(lake.folder.handle(PUBLISHED_TABLE)):
        rows = DeltaTable(published).to_pyarrow_table()
        widened = rows.append_column(column.name, pa.nulls(rows.num_rows, pa.string()))
        widen_records(TableHandle(str(published)), lambda: widened, {column.name: column.comment})
    chains = DeltaTable(lake.folder.handle(CHAINS).uri)
    chains.alter.add_columns([Field("sequences", ArrayType(PrimitiveType("string"), contains_null=True))])
    metrics = DeltaTable(lake.folder.handle(METRICS).uri)
    present = column_types(lake.folder.handle(METRICS))
    deltas_types = {"BIGINT": "long", "DOUBLE": "double", "STRING": "string"}
    lacking = [column for column in METRICS.columns if column.name not in present]
    metrics.alter.add_columns([Field(column.name, PrimitiveType(deltas_types[column.type])) for column in lacking])
    for log in home.glob("lake/*.db/*/_delta_log"):
        for commit in log.glob("*.json"):
            write_file_checksums(log.parent, int(commit.stem))
    for source in read_sources(home / "sources").sources.values():
        shown = publication.load(lake, source)
        noted = replace(shown, tables=take_fingerprints(lake, source, {}))
        fence = Fence(source.name, shown.token + 1)
        replace_records(lake.folder.handle(PUBLISHED_TABLE), [publication.row_of(source, fence, noted)], fence)
    (home / "metastore").mkdir()
    (home / "metastore" / "service.properties").touch()
    return home


@pytest.fixture
def settings(kept: Path, tmp_path: Path) -> Settings:
    """Settings of a copy of that home."""
    home = tmp_path / "home"
    shutil.copytree(kept, home)
    return Settings(home=home, lake=str(home / "lake"), sources=home / "sources", landing=home / "landing")


def log_of(settings: Settings, table: str) -> Path:
    return Path(settings.lake) / table / "_delta_log"


def newest(settings: Settings, table: str, back: int = 0) -> Path:
    return sorted(path for path in log_of(settings, table).glob("*.json") if path.stem.isdigit())[-1 - back]


def forget_checksums(commit: Path) -> None:
    for path in (commit.with_suffix(".crc"), commit.with_name(f".{commit.name}.crc")):
        path.unlink(missing_ok=True)


def without_newest_commit(settings: Settings, table: str) -> None:
    commit = newest(settings, table)
    forget_checksums(commit)
    commit.unlink()


def with_an_emptied_commit(settings: Settings, table: str) -> None:
    commit = newest(settings, table)
    forget_checksums(commit)
    commit.write_bytes(b"")


def with_another_commit(settings: Settings, table: str) -> None:
    commit = newest(settings, table)
    forget_checksums(commit)
    commit.write_bytes(newest(settings, table, 1).read_bytes())


def with_a_flipped_commit(settings: Settings, table: str) -> None:
    content = bytearray(newest(settings, table).read_bytes())
    content[2] ^= 1
    newest(settings, table).write_bytes(content)


def with_an_older_commit_emptied(settings: Settings, table: str) -> None:
    commit = newest(settings, table, 1)
    forget_checksums(commit)
    commit.write_bytes(b"")


def without_an_older_commit(settings: Settings, table: str) -> None:
    newest(settings, table, 1).unlink()


def without_checksums(settings: Settings, table: str) -> None:
    for path in log_of(settings, table).glob("*.crc"):
        path.unlink()


def without_folder(settings: Settings, table: str) -> None:
    shutil.rmtree(Path(settings.lake) / table)


def without_log(settings: Settings, table: str) -> None:
    shutil.rmtree(log_of(settings, table))


def file_of(settings: Settings, table: str) -> Path:
    return Path(sorted(DeltaTable(Path(settings.lake) / table).file_uris())[-1].removeprefix("file://"))


def without_a_file(settings: Settings, table: str) -> None:
    file_of(settings, table).unlink()


def with_a_truncated_file(settings: Settings, table: str) -> None:
    file = file_of(settings, table)
    file.write_bytes(file.read_bytes()[:-9])


def with_a_flipped_file(settings: Settings, table: str) -> None:
    file = file_of(settings, table)
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def with_another_file(settings: Settings, table: str) -> None:
    """One value is another, and the file as long as before."""
    file = file_of(settings, table)
    rows, size = pq.ParquetFile(file).read(), file.stat().st_size
    number = next(name for name in ("total", "delta_count", "diff", "rows") if name in rows.column_names)
    place = rows.column_names.index(number)
    changed = pa.array([value + 1 for value in rows[number].to_pylist()], rows.schema.field(number).type)
    pq.write_table(rows.set_column(place, number, changed), file)
    content = file.read_bytes()
    # what is between the pages and the footer is read by nobody
    missing = size - len(content)
    footer = int.from_bytes(content[-8:-4], "little") + 8
    file.write_bytes(content[:-footer] + b"\0" * max(missing, 0) + content[-footer:])


def committed(change: Change) -> Callable[[Settings, str], None]:
    """A damage: somebody writes all rows that meters has in the table anew, as `change` gives them."""

    def damage(settings: Settings, table: str) -> None:
        of = DeltaTable(Path(settings.lake) / table)
        rows = of.to_pyarrow_table().cast(pa.schema(of.schema().to_arrow()))
        shared = "source" in rows.column_names
        if shared:
            rows = rows.filter(pc.equal(rows["source"], "meters"))
        # not as Tidemark says it: what it replaces it has looked at before
        which = "source >= 'meters' AND source <= 'meters'" if shared else None
        write_deltalake(of, change(rows), mode="overwrite", predicate=which)

    return damage


def last_removed(rows: pa.Table) -> pa.Table:
    return rows.sort_by(rows.column_names[-1]).slice(0, rows.num_rows - 1)


def doubled(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows])


def raised(column: str) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        values = [value + 1 for value in rows[column].to_pylist()]
        return rows.set_column(
            rows.column_names.index(column), column, pa.array(values, rows.schema.field(column).type)
        )

    return change


def moved_on(rows: pa.Table) -> pa.Table:
    """The newest frontiers once more, under the next token."""
    last = rows.sort_by("token").slice(rows.num_rows - 1).to_pylist()
    more = pa.Table.from_pylist([{**row, "token": row["token"] + 1} for row in last], rows.schema)
    return pa.concat_tables([rows, more])


def later(rows: pa.Table) -> pa.Table:
    """The publication a tick later."""
    after = [{**row, "published": row["published"] + timedelta(microseconds=1)} for row in rows.to_pylist()]
    return pa.Table.from_pylist(after, rows.schema)


def set_back(settings: Settings, table: str) -> None:
    of = DeltaTable(Path(settings.lake) / table)
    of.restore(of.version() - 1)


Damage = tuple[Callable[[Settings, str], None], str]
DAMAGES: dict[str, Damage] = {
    **{f"newest commit of {of} gone": (without_newest_commit, of) for of in (*RECORDS, WINDOWS, STATES, CHUNKS, TRACE)},
    **{f"newest commit of {of} empty": (with_an_emptied_commit, of) for of in (LEDGER, FRONTIERS, WINDOWS, CHUNKS)},
    **{f"newest commit of {of} another": (with_another_commit, of) for of in (WINDOWS, STATES)},
    **{f"newest commit of {of} flipped": (with_a_flipped_commit, of) for of in (LEDGER, WINDOWS, TRACE)},
    "older commit empty": (with_an_older_commit_emptied, WINDOWS),
    "older commit gone": (without_an_older_commit, WINDOWS),
    "checksums of the log gone": (without_checksums, WINDOWS),
    "ledger row removed": (committed(last_removed), LEDGER),
    "ledger rows doubled": (committed(doubled), LEDGER),
    "frontiers removed": (committed(last_removed), FRONTIERS),
    "frontiers moved on": (committed(moved_on), FRONTIERS),
    "publication doubled": (committed(doubled), PUBLISHED),
    "publication removed": (committed(last_removed), PUBLISHED),
    "publication set back": (set_back, PUBLISHED),
    "publication later": (committed(later), PUBLISHED),
    "windows changed": (committed(raised("n")), WINDOWS),
    "states changed": (committed(raised("delta_count")), STATES),
    "updates changed": (committed(raised("diff")), TRACE),
    **{f"file of {of} gone": (without_a_file, of) for of in (WINDOWS, LEDGER)},
    **{f"file of {of} truncated": (with_a_truncated_file, of) for of in (WINDOWS, TRACE)},
    **{f"file of {of} flipped": (with_a_flipped_file, of) for of in (WINDOWS, CHUNKS, FRONTIERS)},
    **{f"file of {of} another": (with_another_file, of) for of in (WINDOWS, STATES, TRACE)},
    **{f"folder of {of} gone": (without_folder, of) for of in (FRONTIERS, PUBLISHED, WINDOWS, STATES, CHUNKS, TRACE)},
    "log gone": (without_log, WINDOWS),
}
"""By what was done: the damage, and the table that it is done to."""

HARMLESS = {"checksums of the log gone", f"newest commit of {PUBLISHED} gone", "publication set back"}
"""Damage that changes no row of the publication that is left: a run publishes what should be."""
NOT_IN_LOGS = {f"folder of {PUBLISHED} gone", *(damage for damage in DAMAGES if damage.startswith("file of"))}
"""Damage that the logs do not show: of a file whoever reads it is told, of records the catalog knows that they were."""


def wrong(settings: Settings) -> str:
    """What doctor finds wrong."""
    found = examine_lake(settings, deep=True)
    return " ".join(f"{each.what}: {each.found}; {each.do}." for each in found if each.verdict == "wrong")


def test_a_sound_lake_is_not_complained_about(settings: Settings) -> None:
    assert wrong(settings) == ""
    assert refusal(settings) is None
    assert len(DAMAGES) >= 35


def refusal(settings: Settings) -> TidemarkError | None:
    """The refusal that a run's first stage, a plan, a merge and all others who hold the source meet; None if none."""
    try:
        in_force(StoredLake(Path(settings.lake)), load_source(settings.sources / "meters.yml"))
    except TidemarkError as error:
        return error
    return None


@pytest.mark.turns
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_is_named_with_its_table_and_the_way_back(settings: Settings, damage: str) -> None:
    done, table = DAMAGES[damage]
    done(settings, table)
    found, refused = wrong(settings), refusal(settings)
    if damage in HARMLESS:
        assert refused is None
        return
    name = table.replace(".db/", ".")
    assert table in found or name in found, found
    assert "tidemark restore" in found or "doctor --repair" in found
    if damage in NOT_IN_LOGS:
        return
    assert refused is not None, found
    assert table in str(refused) or name in str(refused)
    assert refused.consequence.startswith("nothing was done")
    assert "tidemark restore" in refused.next_step or "doctor --repair" in refused.next_step


def test_other_sources_go_on(settings: Settings) -> None:
    done, table = DAMAGES["ledger row removed"]
    done(settings, table)
    assert isinstance(refusal(settings), TablesChanged)
    gauges = load_source(settings.sources / "gauges.yml")
    in_force(StoredLake(Path(settings.lake)), gauges)
