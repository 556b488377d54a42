"""Drift: files with other columns than declared, which a source with `unknown_columns: fail` refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source

_MOST_REASONS = 5


class Drift(NamedTuple):
    """Rejects with one reason, which names columns: their rule, their number, and the first file by its path."""

    rule: str
    reason: str
    records: int
    file: str

    def __str__(self) -> str:
        return f"{self.records} times {self.rule}, first in {self.file}: {self.reason}"


class ColumnsChangedError(TidemarkError):
    """Files have other columns than declared, which the source refuses (`fail`). Fact `rules`: rejects by rule."""

    code = "columns_changed"
    rules: dict[str, int]


def check_drift(source: Source, drifts: Sequence[Drift]) -> None:
    """Refuse to land files with these drifts if the source's policy is `fail`.

    Raises:
        ColumnsChangedError: it is `fail`, and there are drifts.
    """
    if source.unknown_columns != "fail" or not drifts:
        return
    rules = dict.fromkeys(sorted(drift.rule for drift in drifts), 0)
    for drift in drifts:
        rules[drift.rule] += drift.records
    ordered = sorted(drifts, key=lambda drift: (drift.rule, drift.file, drift.reason))
    more = len(ordered) - _MOST_REASONS
    raise ColumnsChangedError(
        expected=f"files of {source.name} with exactly the declared columns",
        found="; ".join(map(str, ordered[:_MOST_REASONS])) + (f"; and {more} more reasons" if more > 0 else ""),
        consequence="nothing was landed",
        next_step="declare the columns in the source file (`optional: true` for those that a file may lack), or choose "
        "`unknown_columns: keep` or `quarantine`",
        rules=rules,
    )
