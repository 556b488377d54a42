"""Late rows: the rows of a publication that were late for a window of a definition, and the action taken for each.

There is one row per update and definition for every kind of window. The kernel that makes the windows computes how late
the update is. Rows without a key, and rows whose window would leave the years 1 to 9999, are in no window and are
listed, too. Rows below the horizon are in no window either: they are listed per definition, and once more for the
source's state. A row that was removed below the horizon is listed as one that still counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.distribution import cut_pass, cut_work
from spark_jobs.engine.columns import Flags, Ints, numbers, present
from spark_jobs.engine.updates import consolidate_rows
from spark_jobs.engine.windows import LISTED_REASONS, Account, RowLateness
from spark_jobs.exchange import Block, Labelled, answers, exchange
from spark_jobs.restatement.by_entity import dealt
from spark_jobs.restatement.cutoffs import Cutoffs
from spark_jobs.restatement.touched import Scope
from spark_jobs.restatement.update_columns import required_columns, takes
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import visible_rows
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.written_files import Destination, WrittenFile, as_plain
from spark_jobs.storage.descriptions.tables import LATE, row_columns
from spark_jobs.storage.lakes.lake import Lake

BELOW, KEPT_BELOW = "below_horizon", "kept_below_horizon"
"""The action of a row that was added below the horizon, and that of a row that was removed below it and still
counts."""

ROWS_A_TASK = 1 << 20
"""The rows that one task judges: a day's rows make one small file, a year's rows are judged by all cores."""
LISTED = [c for c in LATE.column_names if c not in ("diff", "token", "known_from")]
"""The columns of `silver.late` that describe a row and its lateness for windows of a definition."""


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


def judged_rows(lake: Lake, scope: Scope, definitions: Sequence[Definition], token: int) -> Judged:
    """Write the touching rows that are late for windows of a definition, or in no window, for `silver.late_history`.

    Each row is judged by itself, so any number of tasks will do. Each task writes its own files.
    """
    judged = Judged()
    for of_some, some in scope.by_window(definitions):
        for answer in _answers(lake, of_some, some, token):
            judged.take(answer)
    return judged


def _answers(lake: Lake, scope: Scope, definitions: Sequence[Definition], token: int) -> list[bytes]:
    columns = {"seq_no", "row_id", "entity", "diff"}.union(*(_columns(definition) for definition in definitions))
    rows = scope.touching_rows(lake, sorted(columns))
    judge = _Judge(scope.source, tuple(definitions), lake.destination(LATE), scope.known_from_us, token, scope.cutoffs)
    cut = cut_pass(lake.spark, rows, ROWS_A_TASK)
    return list(answers(lake.spark, rows.split(cut.rows_a_piece), judge, here=cut.here))


def late_rows(
    lake: Lake, definitions: Sequence[Definition], touching: pa.Table, known_from_us: int, token: int
) -> Iterator[pa.Table]:
    """Yield the rows that `judged_rows` would write for these touching rows, which have all columns of updates."""
    for definition in definitions:
        judge = _Judge(definition.source, (definition,), lake.destination(LATE), known_from_us, token)
        yield from judge.list_late_rows([touching], {definition.name: Account()})


def other_late_files(
    lake: Lake, scope: Scope, definitions: Sequence[Definition], token: int
) -> list[WrittenFile] | None:
    """Write the other rows for `silver.late_history`: after a change of definition, and for rows below the horizon.

    Returns their files, or None if there is neither."""
    if not (scope.everything or scope.has_horizon):
        return None
    others = other_late_rows(lake, scope, definitions, token)
    n_rows, n_bytes = (sum(getattr(rows, what) for rows in others.read.values()) for what in ("n_rows", "n_bytes"))
    cut = cut_work(lake.spark, n_rows, n_bytes, ROWS_A_TASK)
    pieces = [(label, part) for label, rows in others.read.items() for part in rows.split(cut.rows_a_piece)]
    deal = partial(_blocks, n_tasks=cut.tasks)
    answers = exchange(lake.spark, pieces, deal, cut.tasks, others, here=cut.here)
    return [WrittenFile(**file) for answer in answers for file in json.loads(answer)]


def other_late_rows(lake: Lake, scope: Scope, definitions: Sequence[Definition], token: int) -> OtherLateRows:
    """The work that makes the rows which `other_late_files` writes."""
    stay = [definition.name for definition in definitions if not scope.of_parts(definition.part).everything]
    below = pc.field("action").isin(pa.array([BELOW, KEPT_BELOW]))
    of_changed = ~below & ~pc.field("definition").isin(pa.array(stay, pa.string()))
    listed = {TAKEN_BACK: of_changed if scope.everything else None, LISTED_BELOW: below if scope.has_horizon else None}
    visible, of_source = visible_rows(scope.publication), {"source": [scope.source.name]}
    read = {
        label: lake.stored(LATE, [*LISTED, "diff"], visible & which, of_source)
        for label, which in listed.items()
        if which is not None
    }
    if scope.has_horizon:
        columns = [column.name for column in row_columns(scope.source)]
        read[LANDED_BELOW] = scope.below_horizon(lake, [*columns, "diff"])
    return OtherLateRows(scope.source, tuple(definitions), lake.destination(LATE), scope.known_from_us, token, read)


def _blocks(piece: tuple[str, StoredRows], *, n_tasks: int) -> Iterator[Block]:
    label, stored = piece
    for table in stored.tables():
        yield from dealt(label, table, n_tasks)


TAKEN_BACK, LISTED_BELOW, LANDED_BELOW = "taken back", "listed below the horizon", "landed below the horizon"
"""The inputs of `OtherLateRows`: the rows that are listed for definitions that changed or went, the rows that are
listed below the horizon, and the updates that landed below it."""


@dataclass(frozen=True)
class OtherLateRows:
    """The work of a task: the rows of its entities for `silver.late_history` that no touching row makes.

    The rows of changed or removed definitions are taken back, since late rows of a changed definition are judged anew.
    The rows below the horizon that should be listed are compared with the listed ones. `read` has the inputs.
    """

    source: Source
    definitions: tuple[Definition, ...]
    to: Destination
    known_from_us: int
    token: int
    read: Mapping[str, StoredRows]

    def __call__(self, _: int, blocks: Labelled) -> bytes:
        """The files of the rows, as JSON."""
        made = self.rows(blocks)
        return json.dumps(as_plain(self.to.write([made] if made.num_rows else []))).encode()

    def rows(self, blocks: Labelled) -> pa.Table:
        """The rows of some entities, with the columns of `silver.late_history`."""
        given: dict[str, list[pa.Table]] = {label: [] for label in (TAKEN_BACK, LISTED_BELOW, LANDED_BELOW)}
        for label, table in blocks:
            given[label].append(table)
        listed = [table for label in (TAKEN_BACK, LISTED_BELOW) for table in given[label]]
        parts = [_negate(table.select([*LISTED, "diff"])) for table in listed]
        if given[LANDED_BELOW]:
            parts += self._below(pa.concat_tables(given[LANDED_BELOW]))
        if not parts:
            return self.to.schema.empty_table()
        whole = pa.concat_tables([self._fit_columns(part) for part in parts])
        summed = whole.group_by(LISTED).aggregate([("diff", "sum")]).rename_columns([*LISTED, "diff"])
        summed = summed.filter(pc.not_equal(summed["diff"], 0))
        marks = {"known_from": pa.scalar(self.known_from_us, pa.int64()), "token": pa.scalar(self.token, pa.int64())}
        for name, value in marks.items():
            summed = summed.append_column(name, pa.repeat(value, summed.num_rows))
        return summed

    def _below(self, updates: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows that were added or removed below the horizon, net of each other, once per definition that
        would have taken them.

        A row that was added and removed again below the horizon is not listed; one with other values is another row.
        """
        net = consolidate_rows(updates)
        for definition in self.definitions:
            yield self._select_taken(net, definition.name, f"t_{definition.time}", takes(definition, net))
        if self.source.state is not None:
            yield self._select_taken(net, None, "event_time", np.ones(net.num_rows, np.bool_))

    def _select_taken(self, net: pa.Table, definition: str | None, time: str, taken: Flags) -> pa.Table:
        """The rows `taken` of `net`, as a definition that has the time column `time` would have taken them."""
        rows = net.filter(pa.array(taken))
        n, diff = rows.num_rows, numbers(rows["diff"])
        return pa.table(
            {
                "definition": pa.array([definition] * n, pa.string()),
                "source": pa.repeat(self.source.name, n),
                "row_id": rows["row_id"],
                "entity": rows["entity"],
                "event_time": rows[time],
                "drop_lo": pa.array(self.source.drops.starts(numbers(rows["seq_no"]))),
                "action": pa.array(np.where(diff > 0, BELOW, KEPT_BELOW).tolist(), pa.string()),
                "diff": pa.array(np.abs(diff)),
            }
        )

    def _fit_columns(self, rows: pa.Table) -> pa.Table:
        """The rows with the columns that are compared, in the types of the table; a column that they lack is null."""
        columns = {}
        for name in (*LISTED, "diff"):
            kind = self.to.schema.field(name).type
            present = name in rows.column_names
            columns[name] = rows[name].cast(kind) if present else pa.nulls(rows.num_rows, kind)
        return pa.table(columns)


def _negate(rows: pa.Table) -> pa.Table:
    place = rows.schema.get_field_index("diff")
    return rows.set_column(place, "diff", pc.negate(rows["diff"]))


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
    cutoffs: Mapping[str, Cutoffs] = field(default_factory=dict)

    def __call__(self, rows: StoredRows) -> bytes:
        accounts = {definition.name: Account() for definition in self.definitions}
        files = self.to.write(self.list_late_rows(rows.tables(), accounts))
        return json.dumps({"files": as_plain(files), "accounts": {n: asdict(a) for n, a in accounts.items()}}).encode()

    def list_late_rows(self, rows: Iterable[pa.Table], accounts: dict[str, Account]) -> Iterator[pa.Table]:
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
                cutoffs = self._cutoffs(definition, table, lo)
                # only a row from before its cutoff may be late
                times = definition.kind.in_ticks(numbers(table[f"t_{definition.time}"]))
                candidate = (times < cutoffs) & ~np.logical_or.reduce([*left_out.values()])
                for column in required_columns(definition):
                    candidate &= present(table[column])
                if candidate.any():
                    rows_of = table.filter(pa.array(candidate))
                    yield self._judge(definition, rows_of, lo[candidate], cutoffs[candidate])

    def _cutoffs(self, definition: Definition, table: pa.Table, lo: Ints) -> Ints:
        cutoffs = self.cutoffs.get(definition.name)
        if cutoffs is None:
            return lo
        times = definition.kind.in_ticks(numbers(table[f"t_{definition.time}"]))
        return cutoffs.of(table, times, np.ones(table.num_rows, np.bool_))

    def _left_out(self, definition: Definition, table: pa.Table, lo: Ints, reason: str, chosen: Flags) -> pa.Table:
        rows = table.filter(pa.array(chosen))
        columns = {
            "event_time": rows[f"t_{definition.time}"].cast(pa.int64()),
            "drop_lo": pa.array(lo[chosen]),
            "action": pa.repeat(reason, rows.num_rows),
        }
        return pa.table({**self._common(definition, rows), **columns})

    def _judge(self, definition: Definition, rows: pa.Table, lo: Ints, cutoffs: Ints) -> pa.Table:
        times = numbers(rows[f"t_{definition.time}"])
        lateness = definition.lateness(times, cutoffs)
        end = int(definition.kind.half_open)
        last_late = definition.kind.latest_before(definition.kind.in_ticks(times), cutoffs - 1)
        columns = {
            **self._common(definition, rows),
            "event_time": pa.array(times),
            "drop_lo": pa.array(lo),
            "late_from": pa.array(lateness.first + end),
            "late_to": pa.array(last_late + end),
            "counts_from": pa.array(
                np.maximum(lateness.first, lateness.min_end) + end, mask=lateness.moved | lateness.discarded
            ),
            "moved_to": pa.array(lo, mask=~lateness.moved),
            "late_by": pa.array(cutoffs - lateness.first - end),
            "action": pa.array(_actions(lateness)),
        }
        return pa.table(columns).filter(pa.array(lateness.late))

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


def _actions(lateness: RowLateness) -> list[str]:
    chosen = np.select([lateness.moved, lateness.discarded, lateness.partial], [0, 1, 2], default=3)
    return np.array(["next_window", "discard", "partial", "reemit"], object)[chosen].tolist()
