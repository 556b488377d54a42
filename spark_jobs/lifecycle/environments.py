"""Environments with tables: the numbers of a changed source file beside production's, to compare and to promote.

A build rehearses a run that lands nothing, with the environment's source file, over the rows that production has landed
and published. The rows that the rehearsal writes are kept beside the tables, for the promotion. `<env>__silver` and
`<env>__gold` show every table of the source as that run would publish it: tables that differ are copies, the others are
views of production's tables.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.config import Settings
from spark_jobs.definitions.definition import Definition, definitions
from spark_jobs.definitions.versions import LANDED_PARTS, changed_parts
from spark_jobs.engine.restatement import CLOSING
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.jobs.base import Base
from spark_jobs.jobs.request import Request
from spark_jobs.judging.overflows import KIND
from spark_jobs.plans.plan import Rehearsal, rehearse_run
from spark_jobs.restatement.preview import TableDifference, difference
from spark_jobs.restatement.published import published_rows
from spark_jobs.sources import Environment, Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.sql import literal, name, qualified
from spark_jobs.storage.descriptions.tables import LATE, STATE
from spark_jobs.storage.lakes.kept_rows import KeptRows
from spark_jobs.storage.lakes.lake import FrameLake, Lake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.names.copies import write_copy
from spark_jobs.storage.names.views import FINAL, state_columns, window_columns
from spark_jobs.trace import frontiers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT = "_environments"
"""The folder below the lake's root for the rows that builds keep."""
_COPIED, _VIEWED = "table", "view"
_NOT_COMPARED = ("known_from", "revision", "final")


class NothingPublished(TidemarkError):
    """Production has nothing that an environment could be built over. Facts: `source`."""

    code = "nothing_published"


@dataclass(frozen=True)
class Build:
    """An environment's tables of a source.

    Args:
        base: the base of the rehearsed run.
        changed: parts of the definition that differ from the published one.
        tables: `database.table` -> `table` where it differs from production's, else `view`.
        kept: the rows for a promotion; None if files are read otherwise, so that the promotion has to compute them.
    """

    environment: str
    source: str
    built_at: str
    base: Base
    changed: list[str]
    tables: dict[str, str]
    kept: KeptRows | None

    def to_json(self) -> str:
        """The build as JSON, as it is kept in the environment's folder."""
        document = {**asdict(self), "base": self.base.to_json()}
        return json.dumps({**document, "kept": None if self.kept is None else self.kept.to_json()})

    @classmethod
    def from_json(cls, text: str) -> Build:
        """The build that `to_json` wrote."""
        document = json.loads(text)
        base, kept = Base.from_json(document["base"], "a build"), document["kept"]
        return cls(**{**document, "base": base, "kept": None if kept is None else KeptRows.from_json(kept)})

    def is_current(self, lake: Lake, source: Source) -> bool:
        """True if production has landed and published nothing since the build."""
        current_frontiers, current_publication = frontiers.load(lake, source), publication.load(lake, source)
        now = (current_frontiers.landed_through, current_publication.published_us, current_publication.definition)
        return now == (self.base.landed_through, self.base.published_us, self.base.published_definition)


def build(settings: Settings, environment: Environment, source: Source, spark: SparkSession) -> Build:
    """Compute the tables that production would have with the environment's file of `source`, and show them there.

    Raises:
        NothingPublished: production has published nothing of the source.
        TidemarkError: a run with that file would be refused for the same reason.
    """
    lake = SparkLake(spark)
    current_frontiers = frontiers.load(lake, source)
    if not current_frontiers.landed or not publication.load(lake, source).definition:
        raise NothingPublished(
            expected=f"drops of {source.name} that have landed and are published",
            found="none",
            consequence="nothing was built",
            next_step=f"`tidemark plan {source.name} --from … --to … --env {environment.name}` shows what a first run "
            "would give",
            source=source.name,
        )
    drop = current_frontiers.landed[-1][1] - 1
    before = find_build(environment, source.name)
    with rehearse_run(settings, source, source.drops.interval(drop), spark, Request(replay=frozenset())) as rehearsal:
        changed = changed_parts(source, rehearsal.before.publication)
        tables = _show(lake, environment, source, rehearsal, changed)
        folder = f"{KEPT}/{environment.name}/{source.name}/{uuid.uuid4().hex}"
        kept = None if {*changed} & {*LANDED_PARTS} else _keep(rehearsal, source, folder)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    built = Build(environment.name, source.name, now, rehearsal.base, changed, tables, kept)
    environment.note_build(source.name, built.to_json())
    if before is not None:
        _forget(lake, before, keep={*tables})
    return built


def find_build(environment: Environment, source: str) -> Build | None:
    """The environment's build of a source; None if there is none."""
    text = environment.builds().get(source)
    return None if text is None else Build.from_json(text)


def require_build(environment: Environment, source: str) -> Build:
    """The environment's build of a source.

    Raises:
        ParameterError: there is none.
    """
    built = find_build(environment, source)
    if built is None:
        raise ParameterError(
            expected=f"a source that {environment.name} has tables of: {', '.join(environment.builds()) or '(none)'}",
            found=repr(source),
            next_step=f"build them: `tidemark env build {environment.name} {source}`",
        )
    return built


def differences(
    lake: FrameLake, build: Build, source: Source, sample: int
) -> Iterator[tuple[TableDifference, list[str]]]:
    """The difference of each table of the environment from production's, and the columns that only one of both has.

    Rows are compared in the columns that both have. For a table that production does not have, all rows are inserted.
    `sample` rows are shown per table, 0 shows all.
    """
    identities = {f"silver.{d.name}": tuple(d.identity) for d in definitions(source)}
    identities[f"gold.{source.name}"] = (source.entity,)
    for table, kind in build.tables.items():
        database, _, of = table.partition(".")
        layer = database.removeprefix(f"{build.environment}__")
        identity = identities[f"{layer}.{of}"]
        if kind == _VIEWED:
            yield TableDifference(table, identity, {"inserted": 0, "changed": 0, "removed": 0}), []
            continue
        here = lake.spark.sql(f"SELECT * FROM {qualified(database, of)}")
        if of not in lake.catalog.names_if_present(layer):
            columns = [column for column in here.columns if column not in _NOT_COMPARED]
            yield difference(table, here.select(*columns, F.lit(1).alias("diff")), identity, sample), []
            continue
        there = lake.spark.sql(f"SELECT * FROM {qualified(layer, of)}")
        both = [column for column in here.columns if column in there.columns and column not in _NOT_COMPARED]
        lacking = sorted({*here.columns} ^ {*there.columns})
        new, old = (_tag_rows(one, other, both, diff) for one, other, diff in ((here, there, 1), (there, here, -1)))
        yield difference(table, new.unionByName(old), identity, sample), lacking


def drop_tables(lake: Lake, environment: Environment, sources: Sequence[str] = ()) -> list[str]:
    """Remove the environment's tables and kept rows of these sources, or of all; returns the sources that had some."""
    built = {source: Build.from_json(text) for source, text in environment.builds().items()}
    gone = [source for source in built if not sources or source in sources]
    for source in gone:
        _forget(lake, built[source], keep=set())
        lake.folder.remove(f"{KEPT}/{environment.name}/{source}")
        environment.forget_build(source)
    if gone and not environment.builds():
        for layer in ("silver", "gold"):
            lake.catalog.define(f"DROP DATABASE IF EXISTS {name(f'{environment.name}__{layer}')} CASCADE")
        lake.folder.remove(f"{KEPT}/{environment.name}")
    return gone


def _forget(lake: Lake, build: Build, *, keep: set[str]) -> None:
    """Drop the tables of a build except those to `keep`, and remove the rows that it kept."""
    for table, kind in build.tables.items():
        if table not in keep:
            database, _, of = table.partition(".")
            _drop(lake, database, of, kind)
    if build.kept is not None:
        lake.folder.remove(build.kept.folder)


def _drop(lake: Lake, database: str, table: str, kind: str) -> None:
    what = "VIEW" if kind == _VIEWED else "TABLE"
    lake.catalog.define(f"DROP {what} IF EXISTS {qualified(database, table)}")


def _tag_rows(one: DataFrame, other: DataFrame, columns: list[str], diff: int) -> DataFrame:
    """The rows that `one` has and `other` has not, in these columns, each with the given `diff`."""
    return one.select(*columns).exceptAll(other.select(*columns)).withColumn("diff", F.lit(diff))


def _keep(rehearsal: Rehearsal, source: Source, folder: str) -> KeptRows:
    tables = [*(definition.table() for definition in definitions(source)), LATE, STATE, CHAINS]
    # samples are JSON in a lease
    verdicts = [{**v, "sample": json.loads(v["sample"] or "[]")} for v in rehearsal.verdicts if v.get("kind") == KIND]
    accounts = rehearsal.reports["window"].get("accounts", {})
    return KeptRows(folder, rehearsal.lake.keep(tables, folder), accounts, verdicts)


@dataclass
class _VisibleTables:
    """The tables and views of an environment that have been made so far, by `database.table`."""

    lake: Lake
    environment: str
    tables: dict[str, str] = field(default_factory=dict)

    def copy(self, layer: str, table: str, rows: DataFrame, columns: Sequence[Column]) -> None:
        database = self._database(layer, table, _VIEWED)
        if table not in self._tables(database):
            # after the loss of a catalog a table's files are still there, and no table can be created over them
            self.lake.folder.remove(self.lake.folder.path(Table(database, table, "", ())))
        write_copy(self.lake, database, table, rows, f"{table} as {self.environment} would have it.", columns)
        self.tables[f"{database}.{table}"] = _COPIED

    def view(self, layer: str, table: str) -> None:
        database = self._database(layer, table, _COPIED)
        self.lake.catalog.define(
            f"CREATE OR REPLACE VIEW {qualified(database, table)} "
            f"COMMENT {literal(f'{table} as production has it: {self.environment} changes none of its rows.')} "
            f"AS SELECT * FROM {qualified(layer, table)}"
        )
        self.tables[f"{database}.{table}"] = _VIEWED

    def _database(self, layer: str, table: str, other_kind: str) -> str:
        """The environment's database of the layer, which is created; a `table` of `other_kind` in it is dropped."""
        database = f"{self.environment}__{layer}"
        comment = f"{layer} as the environment {self.environment} would have it."
        self.lake.catalog.define(f"CREATE DATABASE IF NOT EXISTS {name(database)} COMMENT {literal(comment)}")
        if table in (self.lake.catalog.views(database) if other_kind == _VIEWED else self._tables(database)):
            _drop(self.lake, database, table, other_kind)
        return database

    def _tables(self, database: str) -> set[str]:
        return self.lake.catalog.names(database) - self.lake.catalog.views(database)


def _show(
    lake: Lake, environment: Environment, source: Source, rehearsal: Rehearsal, changed: Sequence[str]
) -> dict[str, str]:
    """Have the environment's databases show the tables as the rehearsed run would publish them; kinds by table."""
    names, after = _VisibleTables(lake, environment.name), _publication_after(source, rehearsal)
    for definition in definitions(source):
        if f"window.{definition.name}" in changed or rehearsal.lake.wrote(definition.table()):
            columns = [*definition.table().columns, FINAL]
            names.copy("silver", definition.name, _windows(rehearsal, definition, after), columns)
        else:
            names.view("silver", definition.name)
    if source.state is not None:
        if "state" in changed or rehearsal.lake.wrote(STATE):
            names.copy("gold", source.name, _states(rehearsal, source, after), state_columns(source)[1])
        else:
            names.view("gold", source.name)
    return names.tables


def _publication_after(source: Source, rehearsal: Rehearsal) -> Publication:
    """The publication that the rehearsed run would make."""
    before, reached = rehearsal.before.publication, rehearsal.frontiers
    return replace(
        before,
        published_us=reached.seal_us,
        reached_us=reached.reached_us,
        complete_us=reached.complete_us(source),
        tokens=tuple(sorted({*before.tokens, *rehearsal.tokens})),
    )


def _windows(rehearsal: Rehearsal, definition: Definition, after: Publication) -> DataFrame:
    columns = window_columns(definition.table(), definition.final_condition())
    return _rows_after(rehearsal, definition.table(), definition.identity, after).selectExpr(*columns)


def _states(rehearsal: Rehearsal, source: Source, after: Publication) -> DataFrame:
    columns, _ = state_columns(source)
    rows = _rows_after(rehearsal, STATE, ["source", "entity"], after)
    return rows.where(F.col("h.source") == source.name).selectExpr(*columns)


def _rows_after(rehearsal: Rehearsal, table: Table, identity: Sequence[str], after: Publication) -> DataFrame:
    """The rows of a history table that are live after the run, as `h`, each beside the publication's times, as `p`."""
    rows = published_rows(rehearsal.lake, table, after)
    same, is_closing = [*identity, "known_from"], F.col("era") == CLOSING
    closings = rows.where(is_closing).select(*(F.col(column).alias(f"closed_{column}") for column in same))
    closes = [F.col(column).eqNullSafe(F.col(f"closed_{column}")) for column in same]
    live = rows.where(~is_closing).join(closings, closes, "left_anti")
    times = {what: getattr(after, f"{what}_us") for what in ("published", "reached", "complete")}
    instants = [F.timestamp_micros(F.lit(time_us)).alias(what) for what, time_us in times.items()]
    return live.alias("h").crossJoin(rehearsal.lake.spark.range(1).select(*instants).alias("p"))
