"""The records of a source that are in quarantine now, and their groups by rule and state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.records import ERASED
from spark_jobs.portal.drops import ledger
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.people_tables import DISMISSALS
from spark_jobs.storage.descriptions.tables import FILES, QUARANTINE

Row = dict[str, Any]
OPEN, DISMISSED = "open", "dismissed"
_IDENTITY = ["seq_no", "file", "line", "rule", "reason", "raw"]


@dataclass(frozen=True)
class Group:
    """The records in quarantine that have the same rule and state."""

    rule: str
    state: str
    records: Sequence[Row]

    @property
    def name(self) -> str:
        """The name of its page."""
        return f"{self.state} {self.rule}"

    def drops(self, file: str | None = None) -> tuple[int, int]:
        """The numbers of the first and the last drop with records of the group, or of one of its files."""
        numbers = [record["seq_no"] for record in self.records if file is None or record["file"] == file]
        return min(numbers), max(numbers)

    @property
    def files(self) -> list[tuple[str, int]]:
        """The files with their numbers of records, the largest number first."""
        return Counter(record["file"] or "" for record in self.records).most_common()


def records_in_quarantine(lake: HeldLake, source: Source, of_ledger: pa.Table) -> pa.Table:
    """The records that are in quarantine now, as the columns of the view `bronze.quarantine`.

    `replay_state` is open, dismissed or erased. `of_ledger`: the source's `ledger`.
    """
    read = [*_IDENTITY, "diff", "landing", "run_id"]
    rows = lake.of_source(QUARANTINE, source.name, read)
    rows = rows.filter(pc.is_in(rows["landing"], pc.unique(of_ledger["landing"])))
    net = rows.group_by(_IDENTITY, use_threads=False).aggregate([("diff", "sum"), ("run_id", "first")])
    net = net.filter(pc.greater(net["diff_sum"], 0)).drop_columns(["diff_sum"])
    records = net.rename_columns([*_IDENTITY, "run_id"])
    closed = _closings(lake, source, of_ledger) if len(records) else {}
    whys = [closed.get(key) for key in zip(records["file"].to_pylist(), records["rule"].to_pylist(), strict=True)]
    for name in ("because", "dismissed_by"):
        records = records.append_column(name, pa.array([why and why[name] for why in whys], pa.string()))
    rules = records["rule"].to_pylist()
    states = [ERASED if rule == ERASED else DISMISSED if why else OPEN for rule, why in zip(rules, whys, strict=True)]
    return records.append_column("replay_state", pa.array(states, pa.string()))


def _closings(lake: HeldLake, source: Source, of_ledger: pa.Table) -> dict[tuple[str | None, str], Row]:
    """The newest dismissal of the records of each file and rule that is about the file as it landed last."""
    of_source = lake.records(DISMISSALS, pc.field("source") == source.name)
    if not of_source:
        return {}
    checksums = dict(zip(of_ledger["path"].to_pylist(), of_ledger["checksum"].to_pylist(), strict=True))
    return {
        (row["file"], row["rule"]): row
        for row in sorted(of_source, key=lambda row: row["dismissed_at"])
        if row["checksum"] == checksums.get(row["file"])
    }


def quarantine_groups(lake: HeldLake, source: Source) -> list[Group]:
    """The records of a source, grouped by rule and state: open groups first, then the largest first.

    The records of a group are in the order of drops, files and lines.
    """
    version = tuple(lake.version_of(table, source.name) for table in (QUARANTINE, FILES, DISMISSALS))
    return lake.recent(("quarantine", source.name), version, lambda: _groups(lake, source))


def _groups(lake: HeldLake, source: Source) -> list[Group]:
    by_rule: dict[tuple[str, str], list[Row]] = {}
    rows = records_in_quarantine(lake, source, ledger(lake, source)).to_pylist()
    for record in sorted(rows, key=lambda row: (row["seq_no"], row["file"] or "", row["line"] or 0)):
        by_rule.setdefault((record["replay_state"], record["rule"]), []).append(record)
    groups = [Group(rule, state, records) for (state, rule), records in by_rule.items()]
    return sorted(groups, key=lambda group: (group.state != OPEN, -len(group.records), group.rule))
