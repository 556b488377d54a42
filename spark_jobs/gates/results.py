"""The reading of `quality.results`: the rows that count, and the newest runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Result = Mapping[str, Any]
"""A row of `quality.results`."""


def results_that_count(results: Iterable[Result]) -> list[dict[str, Any]]:
    """The last result of each check of each run, oldest first. A stage that is repeated under the same run id checks
    again, and its earlier results no longer count."""
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(results, key=lambda row: row["token"]):
        key = tuple(row[name] for name in ("source", "run_id", "gate", "kind", "relation", "name"))
        newest.pop(key, None)
        newest[key] = dict(row)
    return list(newest.values())


def newest_runs(
    results: Iterable[Result], *, source: str | None = None, run_id: str | None = None, runs: int = 5
) -> list[list[dict[str, Any]]]:
    """The results of the newest runs: a list per run, sorted by source and then newest first, up to `runs` per source.

    If `run_id` is given, only that run's."""
    chosen = [
        row for row in results if source in (None, row["source"]) and run_id in (None, row["run_id"])
    ]  # fmt: skip
    of_runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in results_that_count(chosen):
        of_runs.setdefault((row["source"], row["run_id"]), []).append(row)
    newest = sorted(of_runs.values(), key=lambda rows: -max(row["token"] for row in rows))
    runs_by_source: dict[str, list[list[dict[str, Any]]]] = {}
    for rows in newest:
        runs_by_source.setdefault(rows[0]["source"], []).append(rows)
    return [rows for name in sorted(runs_by_source) for rows in runs_by_source[name][:runs]]
