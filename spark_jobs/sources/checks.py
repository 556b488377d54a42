"""Checks across the fields of a source file: every name refers to something declared that has a fitting type.

They run on the parts of a file that could be read (a `Draft`), so that one mistyped word does not hide other problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.aggregates import NUMBERS
from spark_jobs.sources.bounds import check_data_checks
from spark_jobs.sources.calls import AggregateCall
from spark_jobs.sources.columns import DeclaredColumn, LandingOptions
from spark_jobs.sources.data_checks import DataCheck
from spark_jobs.sources.drops import alignment_problem, schedule
from spark_jobs.sources.emissions import ENDING, OWN_COLUMNS, EarlyTriggerCall
from spark_jobs.sources.extracts import AnyLanding
from spark_jobs.sources.problems import Problem, join_path, name_problem, show
from spark_jobs.sources.quantities import DAY_US, HOUR_US, instant_at
from spark_jobs.sources.section import is_identifier
from spark_jobs.sources.state import DeleteWhen
from spark_jobs.sources.windows import Grace

TIMES = frozenset({"timestamp", "date"})
KEYS = frozenset({"int", "string", "bool", "timestamp", "date"})
ORDERED = frozenset({"int", "string", "decimal", "timestamp", "date"})
RESERVED_COLUMNS = frozenset(
    {"window_start", "window_end", "session_start", "session_end", "known_from", "known_to", "revision", "provisional"}
    | {"final", "late", "diff", "entity", "event_time", "row_id", "seq_no", "delta_id", "source", "run_id", "extra"}
    | {"publication", "observed_at", "at_delta", "delta_count", "vector"}
)
"""Names of Tidemark's own columns in published tables, which keys, aggregates and components may not have."""
RESERVED_IN_WINDOWS = frozenset({"era", "token", "time", "at"})
"""Names of Tidemark's columns in the history and the changelog of windows, and the argument of reads of the past. A
column with the argument's name would hide it."""
RESERVED_IN_STATES = frozenset({"timestamp", "time", "at", "valid_from", "valid_to"})
"""Names of Tidemark's columns in states, their changelog and their pins, and the argument of reads of the past."""
RESERVED_IN_ADAPTIVE = frozenset({"window_id", "delta_ids", "stats", "trigger"})
"""Names of Tidemark's columns in tables of adaptive windows."""
RESERVED_WINDOWS = frozenset({"late", "changelog", "windows", "publications", "published", "state", "frontiers"})
"""Names of Tidemark's own tables in `silver`."""
OWN_TABLES = frozenset(
    {"silver.late_history", "silver.corrections", "gold.state", "gold.state_history", "gold.chain_history"}
    | {"gold.checkpoints", "gold.chains", "gold.refused", "gold.compactions", "trace.published", "trace.publications"}
    | {"trace.frontiers", "bronze.files", "bronze.quarantine", "bronze.duplicates"}
)
"""Tidemark's other tables and views, in databases that also have tables named after sources and windows."""


@dataclass
class DraftWindow:
    """The parts of a window that could be read."""

    key: tuple[str, ...] = ()
    time: str | None = None
    aggregates: dict[str, AggregateCall] = field(default_factory=dict)
    kind: Any = None
    vector: str | None = None
    size_bytes: str | None = None
    grace: Grace | None = None
    has_late: bool = False
    triggers: tuple[EarlyTriggerCall, ...] = ()
    emits: bool = False
    """True if the file asks for the window's early results."""


@dataclass
class Draft:
    """The parts of a source file that could be read: whole fields by name, and the well-formed items of mappings."""

    values: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, DeclaredColumn | None] = field(default_factory=dict)
    """Every declared column; None if its declaration has a problem, so that a use of its name is no second problem."""
    timelines: dict[str, str | None] = field(default_factory=dict)
    windows: dict[str, DraftWindow] = field(default_factory=dict)
    state_mode: str | None = None
    state_datatype: str | None = None
    components: dict[str, Any] = field(default_factory=dict)
    operations: dict[str, str | None] = field(default_factory=dict)
    delete_when: DeleteWhen | None = None
    data_checks: dict[str, DataCheck | None] = field(default_factory=dict)
    """The declared checks; None for a check that has a problem of its own."""

    @property
    def emissions(self) -> dict[str, DraftWindow]:
        """The windows that emit early results, by the names of their emissions."""
        return {name + ENDING: window for name, window in self.windows.items() if window.emits}


Check = Callable[[Draft], Iterator[Problem]]


def check_draft(draft: Draft) -> list[Problem]:
    """All problems across the fields of `draft`."""
    return [problem for check in _CHECKS for problem in check(draft)]


def _column(draft: Draft, path: str, name: str, types: frozenset[str] | None, purpose: str = "") -> Iterator[Problem]:
    if name not in draft.columns:
        yield name_problem(path, "declared column", name, draft.columns)
        return
    column = draft.columns[name]
    if types is not None and column is not None and column.kind not in types:
        listed = " or ".join(sorted(types))
        yield Problem(path, f"a column of type {listed}{purpose}", f"`{name}` of type {column.type}")


def _timeline(draft: Draft, path: str, name: str) -> Iterator[Problem]:
    if name not in draft.timelines:
        yield name_problem(path, "timeline", name, draft.timelines)


def _each_once(path: str, names: tuple[str, ...]) -> Iterator[Problem]:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        yield Problem(path, "every name once", f"{', '.join(repeated)} repeated")


def _check_drops(draft: Draft) -> Iterator[Problem]:
    start_us, every, zone = (draft.values.get(key) for key in ("start", "every", "timezone"))
    drops = schedule(start_us or 0, DAY_US if every is None else every, zone)
    every_us = drops.every_us
    if zone not in (None, "UTC") and drops.calendar is None and every_us < DAY_US:
        yield Problem(
            "timezone",
            "`every` of a day or longer: shorter drops are counted in UTC, where no hour comes twice",
            f"{zone} beside `every: {drops.every}`",
        )
        return
    problem = alignment_problem(drops if start_us is not None or drops.calendar is None else schedule(0, DAY_US, None))
    if problem:
        yield Problem("start" if problem[0].startswith("a start") else "every", *problem)
        return
    landing: AnyLanding | None = draft.values.get("landing")
    if isinstance(landing, LandingOptions):
        needed = ["{date}", *(["{hour}"] if every_us < DAY_US else []), *(["{minute}"] if every_us % HOUR_US else [])]
        missing = [placeholder for placeholder in needed if placeholder not in landing.path]
        if missing:
            yield Problem(
                "landing.path", f"{', '.join(missing)}, so that every drop has its own files", repr(landing.path)
            )
    if start_us is not None and not 1 <= instant_at(start_us).year <= 9999:
        yield Problem("start", "a year from 1 to 9999", str(start_us))


def _check_columns(draft: Draft) -> Iterator[Problem]:
    read_from: dict[str, str] = {}
    for name, column in draft.columns.items():
        header = (column.from_ if column else None) or name
        if header in read_from:
            yield Problem(
                f"columns.{name}",
                "a column of the file for each declared one",
                f"`{header}`, read by `{read_from[header]}` too",
            )
        read_from.setdefault(header, name)


def _check_row(draft: Draft) -> Iterator[Problem]:
    for name, column in draft.timelines.items():
        if column is not None:
            yield from _column(draft, f"timelines.{name}", column, TIMES)
    event_time = draft.values.get("event_time", ())
    for name in event_time:
        yield from _timeline(draft, "event_time", name)
    yield from _each_once("event_time", event_time)
    if draft.values.get("arrival") is not None:
        yield from _timeline(draft, "arrival", draft.values["arrival"])
    if "entity" in draft.values:
        yield from _column(draft, "entity", draft.values["entity"], KEYS - TIMES)
    delta_id = draft.values.get("delta_id") or ()
    for name in delta_id:
        yield from _column(draft, "delta_id", name, KEYS)
    yield from _each_once("delta_id", delta_id)
    sequence = draft.values.get("sequence") or ()
    for name in sequence:
        yield from _column(draft, "sequence", name, ORDERED, ", whose values have one order,")
    yield from _each_once("sequence", sequence)
    if draft.values.get("duplicates") == "last" and not delta_id:
        yield Problem("duplicates", "a source with `delta_id`, by which rows are duplicates", "none")


def _check_windows(draft: Draft) -> Iterator[Problem]:
    for name, window in draft.windows.items():
        path = f"windows.{name}"
        if name in RESERVED_WINDOWS:
            yield Problem(path, "a name that is no table of Tidemark's own", repr(name))
        for key in window.key:
            yield from _column(draft, join_path(path, "key"), key, KEYS)
            yield from _own_name(join_path(path, "key"), key, RESERVED_IN_WINDOWS)
        yield from _each_once(join_path(path, "key"), window.key)
        if window.time is not None:
            yield from _timeline(draft, join_path(path, "time"), window.time)
        if window.grace is not None:
            yield from _check_grace(draft, join_path(path, "grace"), window.grace, window.has_late)
        for output, aggregate in window.aggregates.items():
            yield from _check_aggregate(draft, f"{path}.aggregates.{output}", output, aggregate, window.key)
        if window.kind == "adaptive":
            yield from _check_adaptive(draft, path, window)
        if window.emits:
            yield from _check_emissions(draft, name, window)


def _check_emissions(draft: Draft, name: str, window: DraftWindow) -> Iterator[Problem]:
    path = f"windows.{name}"
    if not is_identifier(name + ENDING):
        yield Problem(path, f"a name so short that it is one with `{ENDING}`, too", repr(name))
    for trigger in window.triggers:
        for column in trigger.columns:
            yield from _column(draft, f"{path}.triggers", column, trigger.operands, f" for {trigger.function}")
    for place, names in (("key", window.key), ("aggregates", tuple(window.aggregates))):
        for taken in sorted({*OWN_COLUMNS}.intersection(names)):
            yield Problem(join_path(path, place), "names that emissions have no column of", repr(taken))


def _check_grace(draft: Draft, path: str, grace: Grace, has_late: bool) -> Iterator[Problem]:
    if has_late:
        yield Problem(path, "`grace` or `late`, not both: each says which rows come too late", "both")
    for name in grace.stream:
        yield from _column(draft, join_path(path, "stream"), name, KEYS)
    yield from _each_once(join_path(path, "stream"), grace.stream)


def _check_adaptive(draft: Draft, path: str, window: DraftWindow) -> Iterator[Problem]:
    if not draft.values.get("delta_id"):
        yield Problem(f"{path}.kind", "a source with `delta_id`, as adaptive windows list their deltas", "none")
    for field_name, column, types in (("vector", window.vector, KEYS), ("size_bytes", window.size_bytes, {"int"})):
        if column is not None:
            yield from _column(draft, join_path(path, field_name), column, frozenset(types))
    for place, names in (("key", window.key), ("aggregates", tuple(window.aggregates))):
        for name in sorted(RESERVED_IN_ADAPTIVE.intersection(names)):
            yield Problem(join_path(path, place), "names that adaptive windows have no column of", repr(name))


def _check_aggregate(
    draft: Draft, path: str, output: str, aggregate: AggregateCall, keys: tuple[str, ...]
) -> Iterator[Problem]:
    yield from _own_name(path, output, RESERVED_IN_WINDOWS)
    if output in keys:
        yield Problem(path, "a name that is no key of the window", repr(output))
    signature = aggregate.signature
    instead = ", or sum(…) of each decimal column" if signature.as_vector else ""
    for column in aggregate.columns:
        yield from _column(draft, path, column, signature.operands, f" for {aggregate.function}{instead}")


def _check_state(draft: Draft) -> Iterator[Problem]:
    types = frozenset({"int"}) if draft.state_datatype == "int64" else NUMBERS
    for name, column in draft.components.items():
        path = f"state.components.{name}"
        yield from _own_name(path, name, RESERVED_IN_STATES)
        if name == draft.values.get("entity"):
            yield Problem(path, "a name that is not the entity's column, beside which components stand", repr(name))
        if draft.state_mode == "operations":
            if column != name:
                yield Problem(
                    path, "a list of names: in mode operations rows say which component they change", show(column)
                )
        elif isinstance(column, str):
            purpose = f" in a state of {draft.state_datatype or 'numbers'}{_instead_of_decimals(draft, column)}"
            yield from _column(draft, path, column, types, purpose)
        elif draft.state_mode in ("diff", "upsert"):
            yield Problem(path, "a column: only mode add takes constants", show(column))
        elif draft.state_datatype == "int64" and isinstance(column, float):
            yield Problem(path, "a whole number in a state of int64", show(column))
    for key, operand in draft.operations.items():
        if operand is not None:
            numbers = types if key == "scalar" else frozenset({"string"})
            yield from _column(draft, f"state.operations.{key}", operand, numbers)
    if draft.operations.get("parent") is not None and not draft.values.get("delta_id"):
        yield Problem("state.operations.parent", "a source with `delta_id`, which parents are told by", "none")
    yield from _check_delete_when(draft)


def _instead_of_decimals(draft: Draft, name: str) -> str:
    """The advice for a decimal column, whose values no vector of a state can have; empty for another column."""
    column = draft.columns.get(name)
    if column is None or column.kind != "decimal":
        return ""
    return "; a window's sum(…) adds decimals exactly, an int of the smallest unit does so in a state of int64"


def _check_delete_when(draft: Draft) -> Iterator[Problem]:
    deletes = draft.delete_when
    if deletes is None:
        return
    path = "state.delete_when"
    yield from _column(draft, path, deletes.column, frozenset({"bool", "string", "int"}))
    column = draft.columns.get(deletes.column)
    kind = {"bool": bool, "string": str, "int": int}.get(column.type if column is not None else "")
    for value in deletes.values:
        if kind is not None and type(value) is not kind:
            yield Problem(
                path, f"values of the column `{deletes.column}`, of type {column and column.type}", show(value)
            )


def _check_compaction(draft: Draft) -> Iterator[Problem]:
    if draft.values.get("compaction") is not None and draft.state_mode is None:
        yield Problem("compaction", "a source with `state`, whose chains are compacted", "none")


def _check_tables(draft: Draft) -> Iterator[Problem]:
    source = draft.values.get("source")
    if source is not None:
        yield from _clashes_within(source, [*draft.windows, *draft.emissions])


def _own_name(path: str, name: str, also: frozenset[str] = frozenset()) -> Iterator[Problem]:
    if name in RESERVED_COLUMNS or name in also:
        yield Problem(path, "a name that is no column of Tidemark's own tables", repr(name))


_CHECKS: tuple[Check, ...] = (
    _check_drops, _check_columns, _check_row, _check_windows, _check_state, _check_compaction, check_data_checks,
    _check_tables,
)  # fmt: skip


def _clashes_within(source: str, windows: Iterable[str]) -> Iterator[Problem]:
    """One problem for each name of a source that would give it a table which exists already.

    The table is one of Tidemark's own, or belongs to another name of the same source.
    """
    owner = dict.fromkeys(OWN_TABLES, "Tidemark")
    for path, tables in tables_of(source, windows):
        taken = next((table for table in tables if table in owner), None)
        if taken is not None:
            yield Problem(path, "a name of its own", f"`{taken}`, of {owner[taken]}")
        owner.update((table, f"{source} {path}") for table in tables if table not in owner)


def tables_of(source: str, windows: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """The tables and views that are named after a source and after its windows, and the copies of them in pins.

    Each item is the path of the name in the source file, with the tables that are named after it.
    """
    yield "source", [
        *(f"gold.{source}{ending}" for ending in ("", "_changes", "_causes")),
        *(f"pins.{source}{ending}" for ending in ("_late", "_state", "_versions")),
        *(f"trace.{source}{ending}" for ending in ("_updates", "_corrections")),
        *(f"bronze.{source}{ending}" for ending in ("_chunks", "_deltas")),
    ]  # fmt: skip
    for window in windows:
        endings = ("", "_history", "_changes", "_causes", "_corrections")
        yield f"windows.{window}", [f"pins.{window}", *(f"silver.{window}{ending}" for ending in endings)]
