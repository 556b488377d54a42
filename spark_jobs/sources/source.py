"""A source: where its files land, what a row means, and which windows and state are computed. One file, one DAG."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from spark_jobs.sources.cases import Case
from spark_jobs.sources.columns import DeclaredColumn, Zone
from spark_jobs.sources.data_checks import DataCheck
from spark_jobs.sources.drops import Schedule, schedule
from spark_jobs.sources.emissions import ENDING, EmissionsWindow
from spark_jobs.sources.extracts import AnyLanding, Extract
from spark_jobs.sources.problems import refuse, refuse_in_words
from spark_jobs.sources.quantities import DAY_US, Every, Instant, PositiveDuration, Size, local_start
from spark_jobs.sources.section import Identifier, Section
from spark_jobs.sources.state import CompactionRules, State, names_to_themselves
from spark_jobs.sources.windows import EmittingWindow, Names, Window

NameMap = Annotated[
    dict[Identifier, str],
    BeforeValidator(names_to_themselves, json_schema_input_type=dict[Identifier, str] | tuple[Identifier, ...]),
    Field(min_length=1),
]
"""`{name: column}`, or a list of columns that keep their names."""
_AFTER_HI = re.compile(r"\s+after\s+hi\s*$")
_RECIPIENT = re.compile(r"[^@\s:/,<>]+@[^@\s:/,<>]+|https?://[^\s/]+\S*")


def _without_hi(deadline: Any) -> Any:
    """A deadline without `after hi`: `2 h` for `2 h after hi`."""
    return _AFTER_HI.sub("", deadline) if isinstance(deadline, str) else deadline


def _check_recipient(recipient: str) -> str:
    if not _RECIPIENT.fullmatch(recipient):
        raise refuse("an e-mail address, or a URL that begins with https:// or http://", recipient)
    return recipient


Deadline = Annotated[PositiveDuration, BeforeValidator(_without_hi, json_schema_input_type=str)]
"""The time, in microseconds after the end of its drop, by which a run has to be done."""
Recipient = Annotated[str, AfterValidator(_check_recipient)]
"""The address that a notice is sent to: an e-mail address, or the URL of a webhook."""
_LEAST_MEMORY_BYTES = 1 << 20
_UNJUDGING = ("severity", "description", "mostly", "treatment", "table")
"""Fields of a check that do not decide whether a row keeps it."""


class Retention(Section):
    """The time back to which reads stay exact. A field that is left out keeps everything."""

    since_us: PositiveDuration | None = Field(default=None, alias="since")
    """The time before the newest publication for which reads of the past are answered; `--as-of` an earlier time is
    refused."""
    horizon_us: PositiveDuration | None = Field(default=None, alias="horizon")
    """The time before the newest event time for which states can be read; drops before it are refused."""
    bronze_us: PositiveDuration | None = Field(default=None, alias="bronze")
    """The time before the newest event time for which landed rows stay in bronze. Maintenance removes older ones, once
    since and horizon have passed them, so both must be given."""

    @model_validator(mode="after")
    def _check_bronze(self) -> Self:
        if self.bronze_us is not None and None in (self.since_us, self.horizon_us):
            raise refuse_in_words(
                "`since` and `horizon` beside `bronze`: only rows that both have passed go", "not both"
            )
        return self


class Dag(Section):
    """The settings of the source's DAG. With `schedule: every`, Airflow runs it after the end of each drop.

    With `schedule: manual` it runs when somebody starts it.
    """

    schedule: Literal["every", "manual"] = "every"
    """`every`: Airflow runs the source after the end of each drop. `manual`: somebody starts its runs."""
    owner: str = "tidemark"
    """The owner of the DAG in Airflow."""
    tags: tuple[str, ...] = ()
    """The tags of the DAG in Airflow."""
    retries: NonNegativeInt = 2
    """The number of further tries of a task whose failure may pass by itself."""
    retry_delay_us: PositiveDuration = Field(default=60_000_000, alias="retry_delay")
    """The wait before the first retry; each further wait is twice as long, up to an hour."""
    max_active_runs: PositiveInt = 16
    """The number of runs that may wait for their turn on the source at a time."""
    batch: PositiveInt | None = None
    """The number of drops that one run of a backfill takes; if left out, the sizes of their files decide."""
    after: tuple[Identifier, ...] = ()
    """Sources that must have published the interval of a scheduled run before it begins."""
    deadline_us: Deadline | None = Field(default=None, alias="deadline")
    """The time after the end of its drop at which a scheduled run is late (`2 h after hi`, or `2 h`)."""
    notify: tuple[Recipient, ...] = ()
    """E-mail addresses, and URLs to which a JSON document is posted. They are notified if a run is late, fails, finds a
    drop without files, or has a check that warns."""

    @model_validator(mode="after")
    def _check_deadline(self) -> Self:
        if self.deadline_us is not None and not self.notify:
            raise refuse("`notify` beside `deadline`: who is told that a run is late", "none")
        if self.deadline_us is not None and self.schedule == "manual":
            raise refuse("`deadline` where `schedule` is `every`: nobody says when a manual run is due", "manual")
        if self.after and self.schedule == "manual":
            raise refuse("`after` where `schedule` is `every`: a manual run begins when somebody says so", "manual")
        return self


class Memory(Section):
    """The memory of a worker for rows and windows, beside Python itself and the rows of one open window.

    Rows and windows beyond it wait on the worker's disk. No result depends on it.
    """

    max_bytes: Size = 100 << 20
    """The size of that memory."""
    high_water: float = 0.8
    """The share of its part for rows, above 0 and below `emergency`, at which rows are flushed to the disk. A run warns
    if rows asked for more."""
    emergency: float = 0.95
    """The share of its part for rows, up to 1, from which on a batch of rows is split before it is taken."""

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if not 0 < self.high_water < self.emergency <= 1:
            raise refuse(
                "`high_water` above 0, and `emergency` above it and at most 1",
                f"high_water {self.high_water:g}, emergency {self.emergency:g}",
            )
        return self

    @field_validator("max_bytes")
    @classmethod
    def _check_size(cls, max_bytes: int) -> int:
        if max_bytes < _LEAST_MEMORY_BYTES:
            raise refuse("1 MiB or more, as a worker sorts its rows in it", max_bytes)
        return max_bytes


class ChunkLimits(Section):
    """The sizes at which landing and merging cut an entity's rows into chunks. No answer depends on them."""

    rows: PositiveInt = 65_536
    """A chunk takes no further row once it has that many rows."""
    max_bytes: Size = Field(default=2 << 20, alias="bytes")
    """A chunk takes no further row once it has that many bytes."""
    unsorted: PositiveInt = 8_192
    """The most rows of a chunk whose times are in no order. Such a chunk is scanned, where a sorted one is searched."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.unsorted > self.rows:
            raise refuse(f"`unsorted` of at most `rows`, {self.rows}: no chunk has more rows", self.unsorted)
        return self


class Source(Section):
    """A checked source file, read with `spark_jobs.sources.load_source`: every name in it is declared and fits."""

    source: Identifier
    """The name of the source, which is that of its file, of its DAG and of its tables."""
    description: str = ""
    """A text for people about the source."""
    timezone: Zone | None = None
    """The time zone of drops of a day or longer; UTC if left out."""
    start_us: Instant = Field(alias="start")
    """The start of the first drop."""
    every: Every = DAY_US
    """The length of a drop."""
    landing: AnyLanding
    """The place of the rows of a drop, and their form."""
    columns: dict[Identifier, DeclaredColumn] = Field(min_length=1)
    """The columns of the files, by name."""
    unknown_columns: Literal["keep", "quarantine", "fail"] = "keep"
    """The treatment of columns that the file does not declare: they stay with their row, in `extra` (`keep`), their
    rows go to quarantine (`quarantine`), or the run is refused (`fail`)."""
    timelines: NameMap
    """The columns that are time axes of a row; a mapping gives them other names."""
    event_time: Names
    """Timelines: the event time of a row is the first of them that it has. The first one is the primary timeline."""
    arrival: str | None = None
    """The timeline that says when a row became known: it is visible from then on, however late it lands. If left out,
    that is the start of its drop."""
    entity: str
    """The column with the thing that a row is about; a row without one goes to quarantine."""
    delta_id: Names | None = None
    """Columns that tell deltas apart; if left out, every row is a delta of its own."""
    duplicates: Literal["first", "last"] = "first"
    """The row that counts of several with one delta_id. `first`: the row with the least row id. `last`: the row with
    the greatest sequence and, among equal ones, the greatest row id."""
    sequence: Names = ()
    """Columns that order rows of one time ahead of their row ids, such as a log position or a sequence number. The
    first column counts first; null is the least value."""
    declared_windows: dict[Identifier, Window] = Field(default_factory=dict, alias="windows")
    """The windows, each published as the table `silver.<name>`."""
    state: State | None = None
    checks: dict[Identifier, DataCheck] = Field(default_factory=dict)
    """Conditions on the rows that land and on the tables that a run would publish."""
    compaction: CompactionRules | None = None
    retention: Retention = Retention()
    memory: Memory = Memory()
    chunks: ChunkLimits = ChunkLimits()
    dag: Dag = Dag()
    tests: dict[Identifier, Case] = Field(default_factory=dict)
    """Tests of the file, which `tidemark test` runs: a list of drops for each."""

    @field_validator("start_us", mode="before")
    @classmethod
    def _read_start(cls, start: Any, info: ValidationInfo) -> Any:
        zone = info.data.get("timezone")
        return start if zone is None else local_start(start, zone)

    @property
    def name(self) -> str:
        """The source's name: also the name of its file, the id of its DAG, and the value of `source` in every table."""
        return self.source

    @property
    def drops(self) -> Schedule:
        """The drops of this source: sequence numbers, intervals, row ids."""
        return schedule(self.start_us, self.every, self.timezone)

    @property
    def path(self) -> str:
        """The pattern of the files of a drop, relative to the landing directory.

        For a source that reads a table or a topic, these are its extracts.
        """
        if not isinstance(self.landing, Extract):
            return self.landing.path
        return (
            f"{self.name}/{{date}}/*"
            if self.drops.every_us % DAY_US == 0
            else f"{self.name}/{{date}}T{{hour}}{{minute}}/*"
        )

    @property
    def wait_us(self) -> int | None:
        """The microseconds for which a run in Airflow waits for files of its drops; None if it does not wait."""
        return None if isinstance(self.landing, Extract) else self.landing.wait_us

    @property
    def extract(self) -> Extract | None:
        """The table or topic that the drops are read from; None if they are files that land."""
        return self.landing if isinstance(self.landing, Extract) else None

    @property
    def brought(self) -> str:
        """The word for one item of a drop: a file, a row of a table, or a message of a topic."""
        return {"files": "file", "table": "row", "topic": "message"}[self.landing.kind]

    @cached_property
    def windows(self) -> dict[str, Window | EmissionsWindow]:
        """The windows that are published as `silver.<name>`: the declared ones, each followed by its emissions if the
        file asks for them."""
        windows: dict[str, Window | EmissionsWindow] = {}
        for name, window in self.declared_windows.items():
            windows[name] = window
            if isinstance(window, EmittingWindow) and window.emit == "early":
                windows[name + ENDING] = EmissionsWindow(window)
        return windows

    @property
    def primary_timeline(self) -> str:
        """The timeline whose time is a row's event time, unless the row has no time there."""
        return self.event_time[0]

    @property
    def keeps_chains(self) -> bool:
        """True if gold keeps the deltas of every entity as a chain.

        It does so if the file declares their compaction, or if a state does not follow from the state before it and the
        new rows. The latter is the case, for example, if a sequence orders rows of one time.
        """
        state = self.state
        if state is None:
            return False
        needs_rows = state.mode in ("upsert", "operations") or state.datatype == "float32"
        return self.compaction is not None or needs_rows or state.delete_when is not None or bool(self.sequence)

    @property
    def quarantining(self) -> dict[str, DataCheck]:
        """The checks that send rows to quarantine, in the order of the file. The first one that a row breaks counts."""
        return {name: check for name, check in self.checks.items() if check.treatment == "quarantine"}

    def header_name(self, column: str) -> str:
        """The name that the declared `column` has in the files."""
        return self.columns[column].from_ or column

    def null_values(self, column: str) -> tuple[str, ...]:
        """The texts that mean no value in the declared `column`."""
        of_column = self.columns[column].null_values
        return self.landing.null_values if of_column is None else of_column

    def window_time(self, window: str) -> str:
        """The timeline over which `window` runs."""
        return self.windows[window].time or self.primary_timeline

    def definition_parts(self) -> dict[str, str]:
        """A hash for each part of the definition that results depend on.

        The parts are `drops`, `parse`, `delta`, `state`, `window.<name>`, and `chains` if gold keeps them. These do not
        change a hash: the order of keys, comments, the DAG's settings, the tests, the description, the retention, the
        memory; the limits of chunks, the rules of compaction, and the place of the files.
        """
        plain = self.model_dump(mode="json", by_alias=True)
        landing = {key: plain["landing"][key] for key in ("format", "delimiter", "null_values", "max_record")}
        landing |= self.landing.dialect()
        if self.landing.plugin is not None:
            landing["plugin"] = self.landing.plugin.digest
        drops = {key: plain[key] for key in ("source", "start", "every")}
        if self.drops.calendar is not None:
            drops["timezone"] = self.drops.timezone
        columns = {name: column.definition() for name, column in self.columns.items()}
        parse = {"columns": columns, "unknown_columns": self.unknown_columns}
        # checks that reject rows decide which rows land; other checks do not change anything that is published
        rejecting = {name: plain["checks"][name] for name in self.quarantining}
        if rejecting:
            parse["checks"] = {
                name: {k: v for k, v in c.items() if k not in _UNJUDGING} for name, c in rejecting.items()
            }
        delta = {key: plain[key] for key in ("timelines", "event_time", "arrival", "entity", "delta_id")}
        # the order of rows of one time changes states and windows; if it decides which rows count, landing too
        order = {"sequence": plain["sequence"]} if self.sequence else {}
        if self.duplicates != "first":
            delta |= {"duplicates": self.duplicates, **order}
        parts = {
            "drops": drops,
            "parse": {**parse, "landing": landing},
            "delta": delta,
            "state": self.state and {**self.state.definition(), **order},
        }
        if self.keeps_chains:
            parts["chains"] = {"kept": True}
        for name, window in self.windows.items():
            plain_window = plain["windows"][name if name in plain["windows"] else name.removesuffix(ENDING)]
            declared = {key: value for key, value in plain_window.items() if key not in _ADDED or value != _ADDED[key]}
            if isinstance(window, EmittingWindow):
                # early results change nothing in the table of the windows
                del declared["emit"], declared["triggers"]
            parts[f"window.{name}"] = {**declared, "time": self.window_time(name), **self._plugins(name), **order}
        return {name: _hash(part) for name, part in sorted(parts.items())}

    def _plugins(self, window: str) -> dict[str, Any]:
        """The digests of the plugins whose aggregates a window has: changed code may compute something else."""
        of = self.windows[window]
        plugins = [call.plugin for call in of.aggregates.values()]
        plugins += [call.plugin for call in of.triggers] if isinstance(of, EmissionsWindow) else []
        digests = {plugin.digest for plugin in plugins if plugin is not None}
        return {"plugins": sorted(digests)} if digests else {}


_ADDED = {"grace": None, "tick": 1, "clip_at_zero": False, "rate_window": None}
"""Keys of windows that later versions added, with the values that change no definition of an earlier version."""


def _hash(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]
