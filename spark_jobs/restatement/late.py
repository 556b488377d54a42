"""Late rows: the rows of a publication that were late for a window of a definition, and the action taken for each.

There is one row per update and definition for every kind of window. The kernel that makes the windows computes how late
the update is. Rows without a key, and rows whose window would leave the years 1 to 9999, are in no window and are
listed, too. Rows below the horizon are in no window either: they are listed per definition, and once more for the
source's state. A row that was removed below the horizon is listed as one that still counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.definition import Definition
from spark_jobs.exchange import ROWS_ALONE, ROWS_HERE, answers
from spark_jobs.kernels.accounts import LISTED_REASONS, Account
from spark_jobs.kernels.lateness import Lateness
from spark_jobs.kernels.plain import Flags, Ints, numbers, present
from spark_jobs.restatement.touched import Scope, at
from spark_jobs.restatement.update_columns import drop_start, has_required, required_columns
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import visible
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.written_files import Destination, WrittenFile, as_plain
from spark_jobs.storage.descriptions.row_json import as_json
from spark_jobs.storage.descriptions.tables import LATE
from spark_jobs.storage.lakes.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import Column

BELOW, KEPT_BELOW = "below_horizon", "kept_below_horizon"
"""The action of a row that was added below the horizon, and that of a row that was removed below it and still
counts."""

ROWS_A_TASK = 1 << 20
"""The rows that one task judges: a day's rows make one small file, a year's rows are judged by all cores."""
LISTED = [c for c in LATE.column_names if c not in ("diff", "token", "known_from")]
"""The columns of `silver.late` that describe a row and its lateness for windows of a definition."""
_STORED = {c.name: c.type for c in LATE.columns}


@dataclass
class Judged:
    """The result of judging touching rows: the `files` of the rows that `silver.late_history` lists, and `accounts`.

    An account, by definition, counts the rows that are in no window, whatever other rows there are.
    """

    files: list[WrittenFile] = field(default_factory=list)
    accounts: dict[str, Account] = field(default_factory=dict)

    def take(self, answer: bytes) -> None:
        """Add the files and accounts of one task's answer."""
        judged = json.loads(answer)
        self.files += [WrittenFile(**file) for file in judged["files"]]
        for name, numbers_of in judged["accounts"].items():
            self.accounts[name] = self.accounts.get(name, Account()) + Account(**numbers_of)


def judged_rows(lake: Lake, scope: Scope, definitions: list[Definition], token: int) -> Judged:
    """Write the touching rows that are late for windows of a definition, or in no window, for `silver.late_history`.

    Each row is judged by itself, so any number of tasks will do. Each task writes its own files.
    """
    judged = Judged()
    for of_some, some in scope.by_window(definitions):
        for answer in _answers(lake, of_some, some, token):
            judged.take(answer)
    return judged


def _answers(lake: Lake, scope: Scope, definitions: list[Definition], token: int) -> list[bytes]:
    columns = {"seq_no", "row_id", "entity", "diff"}.union(*(_columns(definition) for definition in definitions))
    rows = scope.touching_rows(lake, sorted(columns))
    judge = _Judge(scope.source, tuple(definitions), lake.destination(LATE), scope.known_from_us, token)
    pieces = [rows] if rows.n_rows <= ROWS_ALONE else rows.split(ROWS_A_TASK)
    return list(answers(lake.spark, pieces, judge, here=rows.n_rows <= ROWS_HERE))


def late_rows(
    lake: Lake, definitions: Sequence[Definition], touching: pa.Table, known_from_us: int, token: int
) -> Iterator[pa.Table]:
    """Yield the rows that `judged_rows` would write for these touching rows, which have all columns of updates."""
    for definition in definitions:
        judge = _Judge(definition.source, (definition,), lake.destination(LATE), known_from_us, token)
        yield from judge.listed([touching], {definition.name: Account()})


def other_late_rows(lake: Lake, scope: Scope, definitions: list[Definition], token: int) -> DataFrame | None:
    """The other rows to append to `silver.late_history`: after a change of definition, and for rows below the horizon.
    None if there is neither."""
    parts = []
    if scope.everything:
        parts.append(_taken_back(lake, scope, definitions))
    if scope.has_horizon:
        parts.append(_below_changes(lake, scope, definitions))
    if not parts:
        return None
    marks = {"known_from": at(scope.known_from_us), "token": F.lit(token).cast("bigint")}
    return reduce(DataFrame.unionByName, parts).withColumns(marks).select(*LATE.column_names)


def _taken_back(lake: Lake, scope: Scope, definitions: list[Definition]) -> DataFrame:
    """The rows that are listed now for changed or removed definitions, with `diff` negated. Late rows of a changed
    definition are judged anew."""
    stay = [definition.name for definition in definitions if not scope.of_parts(definition.part).everything]
    judged = ~F.col("action").isin(BELOW, KEPT_BELOW) & ~F.col("definition").isin(stay)
    return _listed(lake, scope, judged).withColumn("diff", -F.col("diff"))


def _below_changes(lake: Lake, scope: Scope, definitions: list[Definition]) -> DataFrame:
    """The changes to the listing of rows below the horizon: the rows that should be listed less those that are."""
    listed = _listed(lake, scope, F.col("action").isin(BELOW, KEPT_BELOW)).withColumn("diff", -F.col("diff"))
    both = _below(lake, scope, definitions).unionByName(listed)
    return both.groupBy(*LISTED).agg(F.sum("diff").alias("diff")).where("diff <> 0")


def _below(lake: Lake, scope: Scope, definitions: list[Definition]) -> DataFrame:
    """The rows that were added or removed below the horizon, net of each other, once per definition that would have
    taken them."""
    rows = scope.below_horizon(lake).where(F.col("event_time") < at(scope.frontiers.reached_us))
    # a row that was added and removed again below the horizon is not listed; one with other values is another row
    text = as_json(scope.source).alias("text")
    own = [
        F.first(c).alias(c) for c in rows.columns if c[:2] in ("c_", "t_") or c in ("entity", "event_time", "seq_no")
    ]
    net = rows.groupBy("row_id", text).agg(F.sum("diff").alias("net"), *own).where("net <> 0")
    takers = [
        F.when(has_required(d) & time.isNotNull(), F.struct(F.lit(d.name).alias("definition"), time.alias("time")))
        for d in definitions
        for time in [F.col(f"t_{d.time}")]
    ]
    if scope.source.state is not None:
        takers.append(F.struct(F.lit(None).cast("string").alias("definition"), F.col("event_time").alias("time")))
    if not takers:
        return lake.read(LATE).where("false").select(*LISTED, "diff")
    told = {
        "definition": F.col("of.definition"),
        "event_time": F.col("of.time"),
        "source": _name(scope),
        "drop_lo": F.timestamp_micros(drop_start(scope.source)),
        "action": F.when(F.col("net") > 0, BELOW).otherwise(KEPT_BELOW),
        "diff": F.abs("net"),
    }
    below = net.withColumn("of", F.explode(F.array_compact(F.array(*takers)))).withColumns(told)
    missing = {c: F.lit(None).cast(_STORED[c]) for c in LISTED if c not in below.columns}
    return below.withColumns(missing).select(*LISTED, "diff")


def _listed(lake: Lake, scope: Scope, which: Column) -> DataFrame:
    """The source's rows that are listed now and meet `which`; `diff` is how often each is listed."""
    rows = lake.read(LATE).where((F.col("source") == scope.source.name) & visible(scope.publication) & which)
    return rows.groupBy(*LISTED).agg(F.sum("diff").alias("diff")).where("diff <> 0")


def _name(scope: Scope) -> Column:
    return F.lit(scope.source.name)


def _columns(definition: Definition) -> set[str]:
    """The columns of an update that decide if it is in windows of the definition, and at which time."""
    return {f"t_{definition.time}", *(f"c_{key}" for key in definition.key), *required_columns(definition)}


@dataclass(frozen=True)
class _Judge:
    """The work of a task: judge touching rows, write those that `silver.late` lists, and return the accounts. The
    answer is JSON, see `Judged.take`."""

    source: Source
    definitions: tuple[Definition, ...]
    to: Destination
    known_from_us: int
    token: int

    def __call__(self, rows: StoredRows) -> bytes:
        accounts = {definition.name: Account() for definition in self.definitions}
        files = self.to.write(self.listed(rows.tables(), accounts))
        return json.dumps({"files": as_plain(files), "accounts": {n: asdict(a) for n, a in accounts.items()}}).encode()

    def listed(self, rows: Iterable[pa.Table], accounts: dict[str, Account]) -> Iterator[pa.Table]:
        """Yield the rows for `silver.late_history` that follow from touching rows; `accounts` take the others in."""
        drops = self.source.drops
        for table in rows:
            lo = drops.starts(numbers(table["seq_no"]))
            for definition in self.definitions:
                left_out = definition.left_out(table)
                accounts[definition.name] += _account(numbers(table["diff"]), left_out)
                for reason in LISTED_REASONS:
                    if left_out[reason].any():
                        yield self._left_out(definition, table, lo, reason, left_out[reason])
                # only a row from before its drop may be late
                candidate = (numbers(table[f"t_{definition.time}"]) < lo) & ~np.logical_or.reduce([*left_out.values()])
                for column in required_columns(definition):
                    candidate &= present(table[column])
                if candidate.any():
                    yield self._judged(definition, table.filter(pa.array(candidate)), lo[candidate])

    def _left_out(self, definition: Definition, table: pa.Table, lo: Ints, reason: str, chosen: Flags) -> pa.Table:
        rows = table.filter(pa.array(chosen))
        own = {
            "event_time": rows[f"t_{definition.time}"].cast(pa.int64()),
            "drop_lo": pa.array(lo[chosen]),
            "action": pa.repeat(reason, rows.num_rows),
        }
        return pa.table({**self._common(definition, rows), **own})

    def _judged(self, definition: Definition, rows: pa.Table, lo: Ints) -> pa.Table:
        times = numbers(rows[f"t_{definition.time}"])
        found = definition.lateness(times, lo)
        end = int(definition.kind.half_open)
        last_late = definition.kind.latest_before(times, lo - 1)
        columns = {
            **self._common(definition, rows),
            "event_time": pa.array(times),
            "drop_lo": pa.array(lo),
            "late_from": pa.array(found.first + end),
            "late_to": pa.array(last_late + end),
            "counts_from": pa.array(np.maximum(found.first, found.min_end) + end, mask=found.last < found.min_end),
            "moved_to": pa.array(lo, mask=~found.moved),
            "late_by": pa.array(lo - found.first - end),
            "action": pa.array(_actions(found)),
        }
        return pa.table(columns).filter(pa.array(found.late))

    def _common(self, definition: Definition, rows: pa.Table) -> dict[str, pa.Array]:
        """The columns that every listed row has, whatever its action."""
        same = {
            "source": pa.scalar(self.source.name),
            "definition": pa.scalar(definition.name),
            "known_from": pa.scalar(self.known_from_us, pa.int64()),
            "token": pa.scalar(self.token, pa.int64()),
        }
        repeated = {name: pa.repeat(value, rows.num_rows) for name, value in same.items()}
        return {**repeated, **{name: rows[name] for name in ("row_id", "entity", "diff")}}


def _account(diff: Ints, left_out: dict[str, Flags]) -> Account:
    """The account of the rows that are in no window: the sums of their diffs by reason."""
    net = {reason: int(diff[chosen].sum()) for reason, chosen in left_out.items()}
    return Account(**net, late=sum(net[reason] for reason in LISTED_REASONS))


def _actions(found: Lateness) -> list[str]:
    chosen = np.select([found.moved, found.discarded, found.partial], [0, 1, 2], default=3)
    return np.array(["next_window", "discard", "partial", "reemit"], object)[chosen].tolist()
