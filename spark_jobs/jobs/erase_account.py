"""The account of an erasure: of each file and landing, how many of its rows were the entity's.

They move from the ledger's rows and duplicates to its rejects, and stand in quarantine under the rule `erased`, with
neither entity nor values: rows in files = chunks + quarantine + duplicates, as before.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels.chunks.merging import chunk_rows
from spark_jobs.kernels.plain import Flags, Ints, numbers
from spark_jobs.kernels.records import RULES_VERSION
from spark_jobs.kernels.records.erased import ERASED, Erasures
from spark_jobs.landing.ledger import RETRACTED, versions
from spark_jobs.landing.places import Places
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import DUPLICATES, FILES, LANDINGS, QUARANTINE, chunks

REASON = "expected no record of an entity that was erased, found one; nothing of it is kept"
Key = tuple[str, int, int]
"""Path, landing and diff."""


@dataclass
class Account:
    """By path, landing and diff: `lines` of the entity's rows, how many `others` remain of rows and of duplicates."""

    lines: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(list))
    others: dict[str, Counter[Key]] = field(default_factory=lambda: {"rows": Counter(), "duplicates": Counter()})
    concerned: dict[str, set[Key]] = field(default_factory=lambda: {"rows": set(), "duplicates": set()})

    @property
    def rows(self) -> int:
        """The entity's rows, each that came counted once."""
        return sum(len(lines) for (_, _, diff), lines in self.lines.items() if diff > 0)

    @property
    def files(self) -> set[str]:
        """The files that have rows of the entity."""
        return {path for path, _, diff in self.lines if diff > 0}

    def take(self, what: str, key: Key, line: int, *, erased: bool) -> None:
        """One row of `what`."""
        if erased:
            self.lines[key].append(line)
            self.concerned[what].add(key)
        else:
            self.others[what][key] += 1


@dataclass(frozen=True)
class Bronze:
    """What bronze has of an entity."""

    lake: Lake
    source: Source
    entity: str
    erased: Erasures

    @cached_property
    def places(self) -> Places:
        """The row ids of the source's files."""
        return Places.of(versions(self.lake, self.source).values(), self.source)

    def account(self) -> Account:
        """Count the rows of chunks and duplicates."""
        account = Account()
        columns = ["entity", "rows", "row_ids", "diff", "landing", LANDINGS.name]
        for table in self.lake.stored(chunks(self.source), columns).tables():
            self._take_chunks(account, table)
        for row, erased in self.duplicates():
            key = row["file"], row["landing"], row["diff"]
            account.take("duplicates", key, row["line"], erased=erased)
        return account

    def _take_chunks(self, account: Account, table: pa.Table) -> None:
        arrays = {"row_id": "row_ids", "of_row": LANDINGS.name}
        rows = chunk_rows(table, rows="rows", arrays=arrays, same=["entity", "landing", "diff"])
        ids, diffs = numbers(rows["row_id"]), np.sign(numbers(rows["diff"]))
        of_row = pc.coalesce(rows["of_row"].combine_chunks(), rows["landing"].combine_chunks())
        landings = numbers(pa.chunked_array([of_row]))
        files = self.places.files(ids)
        erased = pc.equal(rows["entity"], self.entity).to_numpy(zero_copy_only=False).astype(bool)
        lines = ids - self.places.firsts[files] + 1
        for n in np.flatnonzero(erased & (files >= 0)).tolist():
            key = self.places.paths[files[n]], int(landings[n]), int(diffs[n])
            account.take("rows", key, int(lines[n]), erased=True)
        self._count_others(account, files, landings, diffs, ~erased & (files >= 0))

    def _count_others(self, account: Account, files: Ints, landings: Ints, diffs: Ints, others: Flags) -> None:
        keys, counts = np.unique(np.stack([files, landings, diffs])[:, others], axis=1, return_counts=True)
        for (file, landing, diff), n in zip(keys.T.tolist(), counts.tolist(), strict=True):
            account.others["rows"][self.places.paths[file], landing, diff] += n

    def duplicates(self) -> Iterator[tuple[dict[str, Any], bool]]:
        """Each row of duplicates, and whether it is the entity's."""
        columns = ["file", "line", "row_id", "counted_row_id", "row", "diff", "landing", "seq_no"]
        for table in self.lake.stored(DUPLICATES, columns, None, {"source": [self.source.name]}).tables():
            erased = self.of_duplicates(table)
            yield from zip(table.to_pylist(), erased.tolist(), strict=True)

    def of_duplicates(self, table: pa.Table) -> Flags:
        """Which duplicates, by their `row`, are the entity's."""
        texts = table["row"].to_pylist()
        return np.array([self._is_of(text) for text in texts], np.bool_)

    def _is_of(self, row: str | None) -> bool:
        return row is not None and json.loads(row).get("entity") == self.entity

    def mentioned(self, table: pa.Table) -> Flags:
        """Which records of quarantine, by `raw` and `reason`, name the entity."""
        named = [
            any(text is not None and self.entity in text and self.erased.mentioned_in(text) for text in texts)
            for texts in zip(table["raw"].to_pylist(), table["reason"].to_pylist(), strict=True)
        ]
        return np.array(named, np.bool_)

    def rejects(self) -> int:
        """How many records of quarantine name the entity."""
        stored = self.lake.stored(QUARANTINE, ["raw", "reason", "diff"], None, {"source": [self.source.name]})
        return sum(int((self.mentioned(t) & (numbers(t["diff"]) > 0)).sum()) for t in stored.tables())


def count_out(bronze: Bronze, account: Account, name: str, fence: Fence) -> None:
    """Write the account: quarantine first, then the ledger. A second time changes nothing.

    Args:
        name: of the erasure, by which a first attempt's records are told.
    """
    lake, source = bronze.lake, bronze.source
    drops = {path: version.seq_no for path, version in versions(lake, source).items()}
    rows = [{**row, "run_id": name, "seq_no": drops[row["file"]]} for row in _records(source, account)]
    more = pa.Table.from_pylist(rows, schema=lake.destination(QUARANTINE).schema)

    def change(table: pa.Table) -> pa.Table | None:
        earlier = pc.equal(table["run_id"], name).to_numpy(zero_copy_only=False).astype(bool)
        named = bronze.mentioned(table)
        if not (earlier.any() or named.any()):
            return None
        for column, value in (("rule", ERASED), ("reason", REASON), ("raw", None)):
            if column in table.column_names:
                place = table.schema.get_field_index(column)
                changed = pc.if_else(pa.array(named), pa.scalar(value, pa.string()), table[column].combine_chunks())
                table = table.set_column(place, table.schema.field(place), changed)
        return table.filter(pa.array(~earlier))

    looked_at = ["run_id", "raw", "reason"]
    lake.rewrite(QUARANTINE, change, looked_at, source=source.name, more=more if more.num_rows else None)
    _amend_ledger(bronze, account, fence)


def _records(source: Source, account: Account) -> Iterator[dict[str, Any]]:
    """Rows of quarantine: one a line, and of those beyond `landing.max_rejects` one range, as landing keeps them."""
    most = source.landing.max_rejects
    for (path, landing, diff), lines in sorted(account.lines.items()):
        ordered = sorted(lines)
        common = {
            "source": source.name, "file": path, "rule": ERASED, "rule_version": RULES_VERSION, "diff": diff,
            "definition": source.definition_parts()["parse"], "reason": REASON, "landing": landing,
            "ended": None if diff > 0 else RETRACTED,
        }  # fmt: skip
        yield from ({**common, "line": line} for line in ordered[:most])
        if len(ordered) > most:
            beyond = ordered[most:]
            yield {**common, "line": beyond[0], "last_line": beyond[-1], "records": len(beyond)}


def _amend_ledger(bronze: Bronze, account: Account, fence: Fence) -> None:
    lake, source = bronze.lake, bronze.source
    ledger = lake.records(FILES, pc.field("source") == source.name)
    rejects = _rejected(lake, source)
    for row in ledger:
        for diff, back in ((1, ""), (-1, "_back")):
            key = row["path"], row["landing"], diff
            if not any(key in of for of in account.concerned.values()):
                continue
            for what, others in account.others.items():
                row[f"{what}{back}"] = others[key]
            row[f"rejects{back}"] = rejects[key]
    lake.replace_records(FILES, ledger, fence)


def _rejected(lake: Lake, source: Source) -> Counter[Key]:
    counted: Counter[Key] = Counter()
    columns = ["file", "landing", "diff", "records"]
    for table in lake.stored(QUARANTINE, columns, None, {"source": [source.name]}).tables():
        for row in table.to_pylist():
            counted[row["file"], row["landing"], row["diff"]] += row["records"] or 1
    return counted


def left_without(bronze: Bronze) -> set[tuple[int, str]]:
    """Drop and path of the duplicates that stand for a row which is in no chunk."""
    standing: dict[tuple[int, int, str], int] = defaultdict(int)
    for row, _ in bronze.duplicates():
        standing[row["counted_row_id"], row["seq_no"], row["file"]] += row["diff"]
    wanted = {row_id for (row_id, _, _), n in standing.items() if n > 0}
    if not wanted:
        return set()
    for table in bronze.lake.stored(chunks(bronze.source), ["row_ids"]).tables():
        wanted -= set(pc.list_flatten(table["row_ids"]).to_pylist())
    return {(seq_no, file) for (row_id, seq_no, file), n in standing.items() if n > 0 and row_id in wanted}
