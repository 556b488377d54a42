"""Columns that came or went: what a source whose `unknown_columns` is `fail` says of them."""

from __future__ import annotations

from collections.abc import Mapping

from spark_jobs.errors import TidemarkError
from spark_jobs.kernels.records import DRIFT_RULES
from spark_jobs.sources import Source


class ColumnsChangedError(TidemarkError):
    """Files have other columns than declared, which the source refuses (`fail`). Fact `rules`: rows by rule."""

    code = "columns_changed"
    rules: dict[str, int]


def check_drift(source: Source, rejects: Mapping[str, int]) -> None:
    """Refuse to land when `rejects` (rows by rule) tell of other columns and the source's policy is `fail`."""
    found = {rule: count for rule, count in sorted(rejects.items()) if rule in DRIFT_RULES and count}
    if source.unknown_columns != "fail" or not found:
        return
    raise ColumnsChangedError(
        expected=f"files of {source.name} with exactly the declared columns",
        found=", ".join(f"{count} rows with {rule}" for rule, count in found.items()),
        consequence="nothing was landed",
        next_step="declare the columns in the source file, or choose `unknown_columns: keep` or `quarantine`",
        rules=found,
    )
