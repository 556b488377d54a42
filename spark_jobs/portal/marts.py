"""The marts as dbt left them: their models in its manifest, the results of their tests, and the published rows that a
mart's rows are made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.origins import Origins
from spark_jobs.portal.values import key_text
from spark_jobs.reads.row_keys import PublishedTable, published_table
from spark_jobs.sources import Source
from spark_jobs.storage.delta.table_notes import column_types, noted_table
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.names.shown_marts import NO_VERSION, ShownMarts, staging_table

Row = dict[str, Any]
NEVER_RUN = "never run"
"""The verdict of a test without a result."""


@dataclass(frozen=True)
class ModelTest:
    """One of dbt's tests: its kind and its query.

    `sources`: the sources that it reads, as `Origins.of` returns them. `result`: its newest row of `quality.results`;
    None if it has never run.
    """

    name: str
    kind: str
    sql: str | None
    sources: frozenset[str] | None
    result: Row | None

    @property
    def verdict(self) -> str:
        """The verdict of its newest run, or `never run`."""
        return NEVER_RUN if self.result is None else str(self.result["verdict"])

    def without_rows(self) -> ModelTest:
        """The test for users who may not see all that it reads: its verdict, without its query and findings."""
        hidden: Row = {"observed": None, "because": None, "on_failure": None, "sample": []}
        return replace(self, sql=None, result=None if self.result is None else self.result | hidden)


@dataclass(frozen=True)
class Mart:
    """A model of dbt. `columns`: the description of each column. `grain`: the columns that tell its rows apart.

    `reads`: the tables and models that it selects from. `tests`: each test that reads it. `source`: the source whose
    publication it follows; None if it follows none. `sources`: the sources that it is made of, also through other
    models; None if they can't be determined. `follows`: the published table whose key is its grain, so that `why` can
    explain its rows.
    """

    name: str
    description: str
    columns: dict[str, str]
    grain: tuple[str, ...]
    reads: list[str]
    source: str | None
    sources: frozenset[str] | None
    follows: PublishedTable | None
    tests: list[ModelTest] = field(default_factory=list)

    def key_of(self, row: Mapping[str, Any]) -> list[str] | None:
        """The key of the published row behind a row of the mart, as `why` takes it; None if there is none."""
        if self.follows is None:
            return None
        values = [row.get(column) for column in self.grain]
        return None if None in values else [key_text(value) for value in values]


def marts(settings: Settings, sources: Mapping[str, Source], results: Mapping[str, Row]) -> dict[str, Mart]:
    """The models in dbt's manifest, by name; none before the first build. `results`: each test's newest, by name."""
    manifest = _json(settings.home / "dbt" / "target" / "manifest.json")
    nodes, origins = manifest.get("nodes", {}), Origins(manifest, sources.values())
    tests = {id_: node for id_, node in nodes.items() if node["resource_type"] == "test"}
    by_name = {}
    for id_, model in nodes.items():
        if model["resource_type"] != "model":
            continue
        grain = _grain(test for test in tests.values() if test.get("attached_node") == id_)
        source = model["config"].get("follows")
        if source is not None and source not in sources:
            # a model of a sample whose source this installation does not have
            continue
        made_of = origins.of(id_)
        if made_of is not None and source is not None:
            made_of |= {source}
        if source is None and made_of is not None and len(made_of) == 1:
            # a team's own model says no source, and is built with the publications of the one that it reads
            (source,) = made_of
        reads = [".".join(reference.split(".")[-2:]) for reference in model["depends_on"]["nodes"]]
        by_name[model["name"]] = Mart(
            model["name"],
            model.get("description") or "",
            {name: column.get("description") or "" for name, column in model["columns"].items()},
            grain,
            [name.replace("tidemark.", "marts.", 1) if name.startswith("tidemark.") else name for name in reads],
            source,
            made_of,
            _table_to_follow(sources.get(source or ""), reads, grain),
            [
                _test(test, origins.of(test_id), results.get(test["name"]))
                for test_id, test in tests.items()
                # a test that is a query is attached to no model: it belongs to each model that it reads
                if id_ in (test.get("attached_node"), *test["depends_on"]["nodes"])
            ],
        )
    return dict(sorted(by_name.items()))


def _grain(tests: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The columns of a model's test `grain`; empty if it has no such test."""
    for test in tests:
        metadata = test.get("test_metadata") or {}
        if metadata.get("name") == "grain":
            return tuple(metadata["kwargs"].get("columns") or ())
    return ()


def _table_to_follow(source: Source | None, reads: list[str], grain: tuple[str, ...]) -> PublishedTable | None:
    """The first published table that the model reads with as many key columns as its grain, in the same order."""
    if source is None:
        return None
    for name in reads:
        try:
            table = published_table(source, name)
        except ParameterError:
            continue
        if grain and len(table.key) == len(grain):
            return table
    return None


def _test(test: Mapping[str, Any], sources: frozenset[str] | None, result: Row | None) -> ModelTest:
    kind = (test.get("test_metadata") or {}).get("name") or "query"
    return ModelTest(test["name"], kind, test.get("compiled_code") or test.get("raw_code"), sources, result)


def _json(path: Path) -> dict[str, Any]:
    """A JSON document of dbt; empty if it does not exist, or is being written."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return document


@dataclass(frozen=True)
class MartRows:
    """The rows of a mart, and the publication that it shows.

    `rows`: their number; None for a view, which is not read. `sample`: the first of them in the order of the mart's
    grain, newest times first; `ordered_by`: that order in words, empty for a mart without a grain. `types`: the type of
    each column; empty for a view.
    """

    rows: int | None
    sample: list[Row]
    published: Any
    ordered_by: list[str] = field(default_factory=list)
    types: Mapping[str, str] = field(default_factory=dict)


def mart_rows(lake: HeldLake, mart: Mart, note: ShownMarts | None, most: int) -> MartRows | None:
    """The rows of the mart that people see, by the note that shows it; None if they see none.

    `most`: the length of the sample. A team's own model does not record its publication: then it is that of the note.
    """
    table = staging_table(mart.name)
    version = None if note is None else note.versions.get(mart.name)
    if note is None or version is None:
        return None
    noted_us = note.published_us
    if version == NO_VERSION:
        return MartRows(None, [], None if noted_us is None else instant(noted_us))
    if lake.version(table) < version:
        return None

    def read() -> MartRows:
        noted = noted_table(lake.folder.handle(table), version)
        rows = lake.rows_at(table, version)
        if mart.grain and all(column in rows.column_names for column in mart.grain):
            newest = [
                (column, "descending" if pa.types.is_timestamp(rows.schema.field(column).type) else "ascending")
                for column in mart.grain
            ]
            newest.sort(key=lambda each: each[1] == "ascending")
        else:
            newest = []
        first = (rows.sort_by(newest) if newest else rows).slice(0, most)
        order = [f"{column}, newest first" if way == "descending" else column for column, way in newest]
        published = noted.note.get("published", noted_us)
        at = None if published is None else instant(int(published))
        types = column_types(lake.folder.handle(table), version)
        return MartRows(rows.num_rows, first.to_pylist(), at, order, types)

    return lake.remember((table.qualified, most), (version, noted_us), read)
