"""The sources that a model or a test of dbt is made of. They decide who may see it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from spark_jobs.sources import Source

_WRITTEN_NAME = re.compile(
    r"\b(\w*(?:bronze|silver|gold|trace|quality|pins|marts|marts_staging))`?\s*\.\s*`?(\w+)", re.IGNORECASE
)
"""A table of the lake as a query names it without dbt's `source()` and `ref()`."""


class Origins:
    """The sources of each node (model or test) in a manifest of dbt."""

    def __init__(self, manifest: Mapping[str, Any], sources: Iterable[Source]) -> None:
        self._nodes: Mapping[str, Any] = manifest.get("nodes", {})
        self._tables = {
            id_: f"{table.get('schema')}.{table.get('identifier') or table.get('name')}".lower()
            for id_, table in manifest.get("sources", {}).items()
        }
        self._models = {node["name"].lower(): id_ for id_, node in self._nodes.items() if _is_model(node)}
        self._publishers = {name: source.name for source in sources for name in _tables_of(source)}

    def of(self, id_: str) -> frozenset[str] | None:
        """The names of the sources that a node is made of, directly or through models.

        None if they can't be determined: the node reads a table that several sources write, or reads something that has
        no known origin.
        """
        sources: set[str] = set()
        seen, left = {id_}, [id_]
        while left:
            each = left.pop()
            reads, tables = self._read_by(each)
            if not (reads or tables):
                return None
            publishers = {self._publishers.get(table) for table in tables}
            if None in publishers:
                return None
            sources |= {publisher for publisher in publishers if publisher is not None}
            left += reads - seen
            seen |= reads
        return frozenset(sources) or None

    def _read_by(self, id_: str) -> tuple[set[str], set[str]]:
        """The nodes that a node reads, and the tables that its query names; a source of dbt is a table itself."""
        node = self._nodes.get(id_)
        if node is None:
            return set(), {self._tables.get(id_) or ".".join(id_.lower().split(".")[-2:])}
        reads = set(node["depends_on"].get("nodes") or ())
        tables = set()
        for database, name in _WRITTEN_NAME.findall(node.get("compiled_code") or node.get("raw_code") or ""):
            if database.lower() in ("marts", "marts_staging") and name.lower() in self._models:
                reads.add(self._models[name.lower()])
            else:
                tables.add(f"{database}.{name}".lower())
        return reads, tables


def _is_model(node: Mapping[str, Any]) -> bool:
    return bool(node["resource_type"] == "model")


def _tables_of(source: Source) -> list[str]:
    """The names of the tables into which this source alone publishes."""
    windows = [f"silver.{window}{part}" for window in source.windows for part in ("", "_history")]
    return [name.lower() for name in (*windows, *([f"gold.{source.name}"] if source.state is not None else []))]
