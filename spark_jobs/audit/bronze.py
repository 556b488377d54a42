"""The part of the audit that compares bronze and the trace, file by file.

They are compared with the ledger, with each other, and with a sample of the files that are still as they landed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.audit.chunks import columns_of_chunks, judged_chunks
from spark_jobs.config import Settings
from spark_jobs.engine.chunks import chunk_rows
from spark_jobs.engine.columns import Flags, Ints, numbers
from spark_jobs.engine.measures import Balance
from spark_jobs.engine.records import ERASED, RULES_VERSION
from spark_jobs.engine.updates import visible_times
from spark_jobs.gates.measures.parts import of_landings
from spark_jobs.gates.verdicts import MAX_EXAMPLES
from spark_jobs.landing.erasures import erased_values
from spark_jobs.landing.ledger import LANDED, Version, versions
from spark_jobs.landing.places import Places
from spark_jobs.landing.reader import list_drop_files
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.worker import read_file
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DUPLICATES, FILES, FRONTIERS, LANDINGS, QUARANTINE, chunks, updates
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.trace import frontiers
from spark_jobs.trace.expiry import first_whole_drop
from spark_jobs.trace.frontiers import NO_HORIZON_US, SourceFrontiers

FILES_READ = 20
"""The most files in the sample, spread evenly over all landed files."""
_OF_ROW = ("row_id", "entity", "event_time", "delta_id")
"""The columns that every row has beside the source's timelines and columns."""
_COUNTS = {"rejects": QUARANTINE, "duplicates": DUPLICATES}
_OF_REJECT = ("line", "rule", "raw", "last_line", "records")
"""The columns of a rejected record that are compared: those in quarantine with those of the file read again."""
_RULE, _LAST_LINE = _OF_REJECT.index("rule"), _OF_REJECT.index("last_line")
_LIMIT_RULES = {"too_many_lines", "expands_too_far", "columns_missing"}
"""Rules about whole files that were added, or whose limits changed, after files had landed; such files stay landed."""
_PLACED = ("batch", "row_id", "seq_no", "entity", "event_time", "time")
Measured = tuple[dict[str, int], dict[str, list[dict[str, Any]]]]


@dataclass(frozen=True)
class BronzeAudit:
    """The audit of bronze and the trace: in one pass over each, rows are added up file by file.

    `versions_by_path`: the source's files. `audited_places`: positions in `places` of the files that are audited.
    """

    settings: Settings
    lake: Lake
    source: Source
    versions_by_path: dict[str, Version]
    places: Places
    current_frontiers: SourceFrontiers
    audited_places: Sequence[int]
    _misshapen: list[dict[str, Any]] = field(default_factory=list)
    _other_rejects: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, settings: Settings, lake: Lake, source: Source, since: int) -> BronzeAudit:
        """The audit of the files of drops from number `since` on."""
        versions_by_path = versions(lake, source)
        places = Places.of(versions_by_path.values(), source)
        audited_places = [n for n, path in enumerate(places.paths) if versions_by_path[path].seq_no >= since]
        return cls(settings, lake, source, versions_by_path, places, frontiers.load(lake, source), audited_places)

    def measure(self) -> Measured:
        """The audit's measures of bronze and the trace, with the files or rows behind each."""
        ledger = self.lake.records(FILES, pc.field("source") == self.source.name)
        landings = {row["landing"] for row in ledger}
        in_bronze, in_trace = self._bronze(landings)
        findings = {
            "files_with_other_rows": self._against_ledger(ledger, in_bronze),
            "files_that_read_otherwise": self._read_again(in_bronze, landings),
            **self._compare_counts(ledger, landings),
            **self._trace(in_trace),
            "chunks_out_of_shape": self._misshapen,
            "rejects_that_read_otherwise": self._other_rejects,
        }
        return {name: len(rows) for name, rows in findings.items()}, {n: r[:MAX_EXAMPLES] for n, r in findings.items()}

    @property
    def _columns(self) -> list[str]:
        return [*(f"t_{t}" for t in self.source.timelines), *(f"c_{c}" for c in self.source.columns)]

    def _bronze(self, landings: set[int]) -> tuple[Balance, Balance]:
        """The rows in bronze of all landings of the ledger, and of the landings that the trace has taken in."""
        stored = self.lake.stored(
            chunks(self.source), [*columns_of_chunks(self.source), "diff", "landing", LANDINGS.name]
        )
        both = Balance.of_nothing(len(self.places.paths)), Balance.of_nothing(len(self.places.paths))
        counted = pa.array(sorted(landings), pa.int64())
        for table in stored.tables():
            faults, sound = judged_chunks(table, self.source)
            self._misshapen.extend(faults)
            rows, diffs, of_landing = _rows_of(sound, self._columns)
            counts = pc.is_in(of_landing, value_set=counted).to_numpy(zero_copy_only=False)
            taken_in = counts & (of_landing.to_numpy() <= self.current_frontiers.landed_through)
            for balance, chosen in zip(both, (counts, taken_in), strict=True):
                self._add(balance, rows.filter(pa.array(chosen)), diffs[chosen])
        return both

    @property
    def _drops_updates(self) -> bool:
        return self.source.retention.horizon_us is not None

    def _add(self, balance: Balance, rows: pa.Table, diffs: Ints) -> None:
        ids = numbers(rows["row_id"])
        # below the horizon updates may have been removed for good, and earlier rows from bronze
        horizon_us = self.current_frontiers.horizon_us if self._drops_updates else self.current_frontiers.rows_from_us
        if horizon_us != NO_HORIZON_US:
            kept = numbers(rows["event_time"]) >= horizon_us
            rows, ids, diffs = rows.filter(pa.array(kept)), ids[kept], diffs[kept]
        balance.add(rows, self.places.files(ids), diffs)

    def _against_ledger(self, ledger: Iterable[dict[str, Any]], bronze: Balance) -> list[dict[str, Any]]:
        if self._drops_updates or self.current_frontiers.rows_from_us != NO_HORIZON_US:
            return []
        due = Counter[str]()
        for row in ledger:
            due[row["path"]] += row["rows"] - (row["rows_back"] or 0)
        table = chunks(self.source).qualified
        findings = [
            {"table": table, "file": path, "ledger": due[path], "bronze": int(bronze.rows[n])}
            for n in self.audited_places
            if due[path := self.places.paths[n]] != bronze.rows[n]
        ]
        strays = int(bronze.rows[-1])
        return [*findings, *([{"table": table, "file": None, "ledger": 0, "bronze": strays}] if strays else [])]

    def _compare_counts(self, ledger: Iterable[dict[str, Any]], landings: set[int]) -> dict[str, list[dict[str, Any]]]:
        """The files whose numbers of rejects or duplicates differ from those in the ledger."""
        findings: dict[str, list[dict[str, Any]]] = {}
        audited_paths = {self.places.paths[n] for n in self.audited_places}
        for what, table in _COUNTS.items():
            due, stored_counts = Counter[str](), Counter[str]()
            for row in ledger:
                due[row["path"]] += (row[what] or 0) - (row[f"{what}_back"] or 0)
            for part in self._counts(table, landings):
                for file, diff, records in zip(*(part[c].to_pylist() for c in part.column_names), strict=True):
                    stored_counts[file] += diff * records
            findings[f"files_with_other_{what}"] = [
                {"table": table.qualified, "file": path, "ledger": due[path], "bronze": stored_counts[path]}
                for path in sorted({*due, *stored_counts} - {None})
                if due[path] != stored_counts[path] and (path in audited_paths or path not in self.versions_by_path)
            ]
        return findings

    def _counts(self, table: Table, landings: set[int]) -> Iterator[pa.Table]:
        """The rows of `table` by parts, with the columns `file`, `diff` and `records`: how many records a row has."""
        columns = ["file", "diff", *(["records"] if table is QUARANTINE else [])]
        for part in self._of_landings(table, columns, landings).tables():
            records = numbers(part["records"], null=1) if table is QUARANTINE else np.ones(part.num_rows, np.int64)
            yield part.select(["file", "diff"]).append_column("records", pa.array(records))

    def _of_landings(self, table: Table, columns: Sequence[str], landings: set[int]) -> StoredRows:
        """The rows that these landings wrote to a table. Rows of other landings are those of ended attempts, and do not
        count."""
        return self.lake.stored(table, columns, of_landings(sorted(landings)), {"source": [self.source.name]})

    def _trace(self, bronze: Balance) -> dict[str, list[dict[str, Any]]]:
        """The findings about the trace: the updates of all batches that count, compared with their rows in bronze."""
        table, balance = updates(self.source), Balance.of_nothing(len(self.places.paths))
        read = ["batch", "diff", "seq_no", "time", *_OF_ROW, *self._columns]
        seals = self._seals()
        batches = {"batch": sorted(self.current_frontiers.arrangement.handles())}
        several, misplaced = list[dict[str, Any]](), list[dict[str, Any]]()
        for part in self.lake.stored(table, read, None, batches).tables():
            diffs = numbers(part["diff"])
            wrong = part.filter(pa.array(np.abs(diffs) != 1)).select(["batch", "row_id", "diff", "entity"])
            several += [{"table": table.qualified, **row} for row in wrong.to_pylist()]
            astray = part.filter(pa.array(self._flag_misplaced(part, seals)))
            misplaced += [{"table": table.qualified, **row} for row in astray.select(_PLACED).to_pylist()]
            # an update with a diff of several counts as one here: it is among the findings already
            self._add(balance, part.drop_columns(["batch", "diff", "seq_no", "time"]), np.sign(diffs))
        differs = balance.differs(bronze)
        asked = [*self.audited_places, len(self.places.paths)]
        otherwise = [
            {
                "table": table.qualified,
                "file": None if n == len(self.places.paths) else self.places.paths[n],
                "bronze": int(bronze.rows[n]),
                "trace": int(balance.rows[n]),
                "values_differ": bool(bronze.rows[n] == balance.rows[n]),
            }
            for n in asked
            if differs[n]
        ]
        return {
            "files_that_the_trace_has_otherwise": otherwise,
            "updates_of_several": several,
            "updates_out_of_place": misplaced,
        }

    def _seals(self) -> Ints:
        """All values of seal and since in the frontiers' history, in microseconds, sorted.

        An update may be visible at one of these times instead of its own: at the seal under which its row came, or at
        a since, up to which times are no longer told apart.
        """
        moves = self.lake.records(FRONTIERS, pc.field("source") == self.source.name)
        return np.unique([micros(row[name]) for row in moves for name in ("seal", "since") if row[name] is not None])

    def _flag_misplaced(self, part: pa.Table, seals: Ints) -> Flags:
        """A flag for each update: True if its drop is not that of its row, or its visible time is wrong.

        The visible time must be the one that follows from the row, or a later one of `seals`.
        """
        drops, times = numbers(part["seq_no"]), numbers(part["time"])
        starts = self.source.drops.starts(drops)
        arrivals = part[f"t_{self.source.arrival}"] if self.source.arrival else None
        earliest = visible_times(numbers(part["event_time"]), starts, np.iinfo(np.int64).min, arrivals)
        at_seal = (times > earliest) & np.isin(times, seals)
        return (drops != numbers(part["row_id"]) >> PLACE_BITS) | ((times != earliest) & ~at_seal)

    def _read_again(self, bronze: Balance, landings: set[int]) -> list[dict[str, Any]]:
        """The files of the sample that, read again, give other rows than bronze has. Collects rejects that differ."""
        landed = [n for n in self.audited_places if self.versions_by_path[self.places.paths[n]].kind == LANDED]
        step = max(1, -(-len(landed) // FILES_READ))
        hidden, quarantine = self._duplicates(landings), self._quarantine(landings)
        findings, spec = [], record_spec(self.source, erased_values(self.lake, self.source))
        for n in landed[::step]:
            version = self.versions_by_path[self.places.paths[n]]
            file = next(
                (
                    f
                    for f in list_drop_files(self.settings.landing, self.source, version.seq_no)
                    if (f.path, f.checksum) == (version.path, version.checksum)
                ),
                None,
            )
            if file is None or version.first_row_id is None:
                continue  # it was changed or removed after it landed, so it proves nothing
            file = replace(file, first_row_id=version.first_row_id)
            again, rejects = Balance.of_nothing(len(self.places.paths)), list[dict[str, Any]]()
            for batch in read_file(file, self.source.landing.form, spec):
                rows = pa.Table.from_batches([batch])
                good = rows.filter(pc.and_(rows["rule"].is_null(), pc.invert(pc.is_in(rows["row_id"], hidden))))
                kept = good.select([*_OF_ROW, *self._columns])
                rejects += rows.filter(rows["rule"].is_valid()).select(_OF_REJECT).to_pylist()
                self._add(again, kept, np.ones(kept.num_rows, np.int64))
            rules = {record[_RULE] for record in +quarantine.get(version.path, Counter())}
            if _LIMIT_RULES & (rules ^ {reject["rule"] for reject in rejects}):
                continue  # landed under other limits for whole files
            by_earlier_rules = version.path in quarantine and not quarantine[version.path]
            if by_earlier_rules and again.rows[n] != bronze.rows[n]:
                continue  # earlier rules rejected, or accepted, records that the rules of now do not
            if (again.rows[n], again.sums[n]) != (bronze.rows[n], bronze.sums[n]):
                finding = {"file": version.path, "read": int(again.rows[n]), "bronze": int(bronze.rows[n])}
                findings.append({"table": chunks(self.source).qualified, **finding})
            self._other_rejects.extend(self._rejected_otherwise(version.path, rejects, quarantine))
        return findings

    def _quarantine(self, landings: set[int]) -> dict[str, Counter[tuple[Any, ...]]]:
        """The rejected records in quarantine, counted by file; none for a file with a record of earlier rules."""
        read = ["file", "diff", "rule_version", *_OF_REJECT]
        stored = self._of_landings(QUARANTINE, read, landings).whole().to_pylist()
        older = {row["file"] for row in stored if row["rule_version"] != RULES_VERSION}
        records_by_file: dict[str, Counter[tuple[Any, ...]]] = {}
        for row in stored:
            if row["file"] not in older:
                records_by_file.setdefault(row["file"], Counter())[tuple(row[c] for c in _OF_REJECT)] += row["diff"]
        return records_by_file | {file: Counter() for file in older}

    def _rejected_otherwise(
        self, path: str, rejects: Sequence[dict[str, Any]], quarantine: dict[str, Counter[tuple[Any, ...]]]
    ) -> Iterator[dict[str, Any]]:
        """The rejected records that only quarantine has of a file, or only the file when it is read again."""
        stored_records = quarantine.get(path, Counter())
        if path in quarantine and not stored_records:
            return  # rejected by earlier rules
        read = Counter(tuple(row[c] for c in _OF_REJECT) for row in rejects)
        others = _kept_otherwise(stored_records, self.source.landing.max_rejects)
        if self.versions_by_path[path].seq_no < first_whole_drop(self.source, self.current_frontiers.rows_from_us):
            others |= {ERASED}  # an erasure does not list rows that have expired
        for where, differs in (("file", read - stored_records), ("quarantine", stored_records - read)):
            for record in differs:
                if record[_RULE] in others:
                    continue
                yield {
                    "table": QUARANTINE.qualified,
                    "file": path,
                    "in": where,
                    **dict(zip(_OF_REJECT, record, strict=True)),
                }

    def _duplicates(self, landings: set[int]) -> pa.Array:
        """The ids of rows that are duplicates, and so do not count."""
        stored = self._of_landings(DUPLICATES, ["row_id", "diff"], landings).whole()
        counted = stored.group_by("row_id").aggregate([("diff", "sum")])
        return counted.filter(pc.greater(counted["diff_sum"], 0))["row_id"].combine_chunks()


def _kept_otherwise(records: Counter[tuple[Any, ...]], max_rejects: int) -> set[str]:
    """The rules whose records were kept one by one up to another limit than `max_rejects` before a range began."""
    singles = Counter(record[_RULE] for record in records.elements() if record[_LAST_LINE] is None)
    ranged = {record[_RULE] for record in +records if record[_LAST_LINE] is not None}
    return {
        rule
        for rule in singles.keys() | ranged
        if singles[rule] > max_rejects or (rule in ranged and singles[rule] != max_rejects)
    }


def _rows_of(stored: pa.Table, columns: Sequence[str]) -> tuple[pa.Table, Ints, pa.Array]:
    """The rows in chunks, with `_OF_ROW` and the given columns; the diff of each row, and its landing."""
    lists = {"row_id": "row_ids", "event_time": "event_times", "delta_id": "delta_ids", "of_row": LANDINGS.name}
    lists |= {column: column for column in columns}
    rows = chunk_rows(stored, rows="rows", arrays=lists, same=["entity", "landing", "diff"])
    landings = pc.coalesce(rows["of_row"].combine_chunks(), rows["landing"].combine_chunks())
    return rows.select([*_OF_ROW, *columns]), numbers(rows["diff"]), landings
