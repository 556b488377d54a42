"""The account of an erasure: how many rows of each file and landing were chosen.

In the ledger they move from the rows and duplicates to the rejects. Quarantine lists them under the rule `erased`,
without entity or values. So the sum still holds: rows in files = chunks + quarantine + duplicates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks import chunk_rows
from spark_jobs.engine.columns import Flags, Ints, numbers
from spark_jobs.engine.records import ERASED, ERASED_REASON, RULES_VERSION, Erasures
from spark_jobs.landing.choices import Choice
from spark_jobs.landing.ledger import RETRACTED, versions
from spark_jobs.landing.places import Places
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.tables import DUPLICATES, FILES, LANDINGS, QUARANTINE, chunks
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import frontiers
from spark_jobs.trace.expiry import first_whole_drop

Key = tuple[str, int, int]
"""The path of a file, a landing, and the diff of the rows."""


@dataclass
class ErasureAccount:
    """The chosen rows and duplicates among those in bronze, by path, landing and diff.

    `lines`: the lines of the chosen rows and duplicates. `row_ids`: the ids of the chosen rows. `entities`: the
    entities that have chosen rows. `others`: how many rows and duplicates are not chosen, by kind. `concerned`: the
    keys under which rows are chosen, and those under which duplicates are.
    """

    lines: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(list))
    row_ids: set[int] = field(default_factory=set)
    entities: set[str] = field(default_factory=set)
    others: dict[str, Counter[Key]] = field(default_factory=lambda: {"rows": Counter(), "duplicates": Counter()})
    concerned: dict[str, set[Key]] = field(default_factory=lambda: {"rows": set(), "duplicates": set()})

    @property
    def rows(self) -> int:
        """The number of chosen rows and duplicates that landed, without counting those taken back."""
        return sum(len(lines) for (_, _, diff), lines in self.lines.items() if diff > 0)

    @property
    def files(self) -> set[str]:
        """The files that have chosen rows."""
        return {path for path, _, diff in self.lines if diff > 0}

    def take(self, what: str, key: Key, line: int, *, erased: bool) -> None:
        """Count one row of `what` (rows or duplicates): as chosen if `erased`, else as one of the others."""
        if erased:
            self.lines[key].append(line)
            self.concerned[what].add(key)
        else:
            self.others[what][key] += 1


@dataclass(frozen=True)
class Bronze:
    """The chosen rows, duplicates and records in bronze."""

    lake: SparkLake
    source: Source
    choice: Choice
    erased: Erasures

    @cached_property
    def first_whole(self) -> int:
        """The number of the first drop whose rows are all in bronze. Rows of earlier drops have expired: the ledger
        keeps their counts."""
        return first_whole_drop(self.source, frontiers.load(self.lake, self.source).rows_from_us)

    @cached_property
    def places(self) -> Places:
        """The source's files by their row ids."""
        return Places.of(versions(self.lake, self.source).values(), self.source)

    def account(self) -> ErasureAccount:
        """Count the rows of chunks and duplicates: the chosen ones and the others."""
        account = ErasureAccount()
        columns = ["entity", "rows", "row_ids", "diff", "landing", LANDINGS.name, self.choice.stored]
        for table in self.lake.stored(chunks(self.source), columns).tables():
            self._take_chunks(account, table)
        for row, erased in self.duplicates():
            key = row["file"], row["landing"], row["diff"]
            account.take("duplicates", key, row["line"], erased=erased)
        return account

    def _take_chunks(self, account: ErasureAccount, table: pa.Table) -> None:
        arrays = {"row_id": "row_ids", "of_row": LANDINGS.name}
        rows = chunk_rows(table, rows="rows", arrays=arrays, same=["entity", "landing", "diff"])
        ids, diffs = numbers(rows["row_id"]), np.sign(numbers(rows["diff"]))
        of_row = pc.coalesce(rows["of_row"].combine_chunks(), rows["landing"].combine_chunks())
        landings = numbers(pa.chunked_array([of_row]))
        files = self.places.files(ids)
        erased = self.of_chunks(table)
        account.row_ids.update(ids[erased].tolist())
        account.entities.update(rows["entity"].filter(pa.array(erased)).unique().to_pylist())
        lines = ids - self.places.firsts[files] + 1
        counted = (files >= 0) & (ids >> PLACE_BITS >= self.first_whole)
        for n in np.flatnonzero(erased & counted).tolist():
            key = self.places.paths[files[n]], int(landings[n]), int(diffs[n])
            account.take("rows", key, int(lines[n]), erased=True)
        self._count_others(account, files, landings, diffs, ~erased & counted)

    def _count_others(self, account: ErasureAccount, files: Ints, landings: Ints, diffs: Ints, others: Flags) -> None:
        keys, counts = np.unique(np.stack([files, landings, diffs])[:, others], axis=1, return_counts=True)
        for (file, landing, diff), n in zip(keys.T.tolist(), counts.tolist(), strict=True):
            account.others["rows"][self.places.paths[file], landing, diff] += n

    def duplicates(self) -> Iterator[tuple[dict[str, Any], bool]]:
        """Each row of the source's duplicates, with True if it is chosen."""
        columns = ["file", "line", "row_id", "counted_row_id", "row", "diff", "landing", "seq_no"]
        for table in self.lake.stored(DUPLICATES, columns, None, {"source": [self.source.name]}).tables():
            erased = self.of_duplicates(table)
            yield from zip(table.to_pylist(), erased.tolist(), strict=True)

    def of_chunks(self, table: pa.Table) -> Flags:
        """A flag for each row of chunks, one chunk after the other: True if it is chosen. The chunks have the columns
        `rows` and `choice.stored`."""
        if self.choice.is_entity:
            return np.repeat(self.choice.of_rows(table), numbers(table["rows"]))
        return self.choice.of_rows(chunk_rows(table, rows="rows", arrays={s: s for s in [self.choice.stored]}, same=()))

    def of_duplicates(self, table: pa.Table) -> Flags:
        """A flag for each duplicate: True if it is chosen, by the column `row`."""
        return self.choice.of_json(table["row"].to_pylist())

    def flag_mentions(self, table: pa.Table) -> Flags:
        """A flag for each row of quarantine: True if its `raw` or `reason` has the chosen value."""
        value = self.choice.value
        named = [
            any(text is not None and value in text and self.erased.mentioned_in(text) for text in texts)
            for texts in zip(table["raw"].to_pylist(), table["reason"].to_pylist(), strict=True)
        ]
        return np.array(named, np.bool_)

    def rejects(self) -> int:
        """The number of rows in quarantine that have the chosen value, without counting those taken back."""
        stored = self.lake.stored(QUARANTINE, ["raw", "reason", "diff"], None, {"source": [self.source.name]})
        return sum(int((self.flag_mentions(t) & (numbers(t["diff"]) > 0)).sum()) for t in stored.tables())


def count_out(bronze: Bronze, account: ErasureAccount, name: str, fence: Fence) -> None:
    """Write the account to quarantine and then to the ledger. Done again, it changes nothing.

    Args:
        name: the erasure's name, by which the records of an earlier attempt are recognized.
    """
    lake, source = bronze.lake, bronze.source
    drops = {path: version.seq_no for path, version in versions(lake, source).items()}
    rows = [{**row, "run_id": name, "seq_no": drops[row["file"]]} for row in _records(source, account)]
    more = pa.Table.from_pylist(rows, schema=lake.destination(QUARANTINE).schema)

    def change(table: pa.Table) -> pa.Table | None:
        earlier = pc.equal(table["run_id"], name).to_numpy(zero_copy_only=False).astype(bool)
        named = bronze.flag_mentions(table)
        if not (earlier.any() or named.any()):
            return None
        for column, value in (("rule", ERASED), ("reason", ERASED_REASON), ("raw", None)):
            if column in table.column_names:
                place = table.schema.get_field_index(column)
                changed = pc.if_else(pa.array(named), pa.scalar(value, pa.string()), table[column].combine_chunks())
                table = table.set_column(place, table.schema.field(place), changed)
        return table.filter(pa.array(~earlier))

    looked_at = ["run_id", "raw", "reason"]
    lake.rewrite(QUARANTINE, change, looked_at, source=source.name, more=more if more.num_rows else None)
    _amend_ledger(bronze, account, fence)


def _records(source: Source, account: ErasureAccount) -> Iterator[dict[str, Any]]:
    """The rows of quarantine for the chosen rows, in the form that landing writes.

    There is a row for each line of a file up to `landing.max_rejects`, and one range for all further lines.
    """
    most = source.landing.max_rejects
    for (path, landing, diff), lines in sorted(account.lines.items()):
        ordered = sorted(lines)
        common = {
            "source": source.name, "file": path, "rule": ERASED, "rule_version": RULES_VERSION, "diff": diff,
            "definition": source.definition_parts()["parse"], "reason": ERASED_REASON, "landing": landing,
            "ended": None if diff > 0 else RETRACTED,
        }  # fmt: skip
        yield from ({**common, "line": line} for line in ordered[:most])
        if len(ordered) > most:
            beyond = ordered[most:]
            yield {**common, "line": beyond[0], "last_line": beyond[-1], "records": len(beyond)}


def _amend_ledger(bronze: Bronze, account: ErasureAccount, fence: Fence) -> None:
    lake, source = bronze.lake, bronze.source
    ledger = lake.records(FILES, pc.field("source") == source.name)
    rejects = _count_rejects(lake, source)
    for row in ledger:
        for diff, back in ((1, ""), (-1, "_back")):
            key = row["path"], row["landing"], diff
            if not any(key in of for of in account.concerned.values()):
                continue
            for what, others in account.others.items():
                if what != "rows" or row["seq_no"] >= bronze.first_whole:
                    row[f"{what}{back}"] = others[key]
            row[f"rejects{back}"] = rejects[key]
    lake.replace_records(FILES, ledger, fence)


def _count_rejects(lake: Lake, source: Source) -> Counter[Key]:
    counted: Counter[Key] = Counter()
    columns = ["file", "landing", "diff", "records"]
    for table in lake.stored(QUARANTINE, columns, None, {"source": [source.name]}).tables():
        for row in table.to_pylist():
            counted[row["file"], row["landing"], row["diff"]] += row["records"] or 1
    return counted


def left_without(bronze: Bronze) -> set[tuple[int, str]]:
    """The drop and path of each duplicate whose counted row is in no chunk any more."""
    net_diffs: dict[tuple[int, int, str], int] = defaultdict(int)
    for row, _ in bronze.duplicates():
        net_diffs[row["counted_row_id"], row["seq_no"], row["file"]] += row["diff"]
    # an expired row counts all the same
    whole = bronze.first_whole << PLACE_BITS
    wanted = {row_id for (row_id, _, _), n in net_diffs.items() if n > 0 and row_id >= whole}
    if not wanted:
        return set()
    for table in bronze.lake.stored(chunks(bronze.source), ["row_ids"]).tables():
        wanted -= set(pc.list_flatten(table["row_ids"]).to_pylist())
    return {(seq_no, file) for (row_id, seq_no, file), n in net_diffs.items() if n > 0 and row_id in wanted}
