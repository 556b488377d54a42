"""A source: where its files land, what a row means, and which windows and state come of it. One file, one DAG."""

from __future__ import annotations

import hashlib
import json
import re
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

from spark_jobs.sources.columns import Column, Zone
from spark_jobs.sources.data_checks import DataCheck
from spark_jobs.sources.drops import Schedule, schedule
from spark_jobs.sources.extracts import AnyLanding, Extract
from spark_jobs.sources.problems import refuse
from spark_jobs.sources.quantities import DAY_US, Every, Instant, PositiveDuration, Size, local_start
from spark_jobs.sources.section import Identifier, Section
from spark_jobs.sources.state import Compaction, State, names_to_themselves
from spark_jobs.sources.windows import Names, Window

NameMap = Annotated[dict[Identifier, str], BeforeValidator(names_to_themselves), Field(min_length=1)]
"""`{name: column}`, or a list of columns that keep their names."""
_AFTER_HI = re.compile(r"\s+after\s+hi\s*$")
_RECIPIENT = re.compile(r"[^@\s:/,<>]+@[^@\s:/,<>]+|https?://[^\s/]+\S*")


def _without_hi(deadline: Any) -> Any:
    """The duration of `2 h after hi`."""
    return _AFTER_HI.sub("", deadline) if isinstance(deadline, str) else deadline


def _check_recipient(recipient: str) -> str:
    if not _RECIPIENT.fullmatch(recipient):
        raise refuse("an e-mail address, or a URL that begins with https:// or http://", recipient)
    return recipient


Deadline = Annotated[PositiveDuration, BeforeValidator(_without_hi)]
"""How long after the end of its drop a run has to be done, in microseconds."""
Recipient = Annotated[str, AfterValidator(_check_recipient)]
"""Who is told: an e-mail address, or a webhook's URL."""
_LEAST_MEMORY_BYTES = 1 << 20
_UNJUDGING = ("severity", "description", "mostly", "treatment", "table")
"""Fields of a check that decide nothing about a row."""


class Retention(Section):
    """How far back reads stay exact; what is left out keeps everything.

    since: for how long before the newest publication it stays known what was known when; `--as-of` before it is
    refused. horizon: for how long before the newest event time states can be asked for; drops before it are refused.
    """

    since_us: PositiveDuration | None = Field(default=None, alias="since")
    horizon_us: PositiveDuration | None = Field(default=None, alias="horizon")


class Dag(Section):
    """How Airflow runs the source: `schedule: every` runs it after each drop's end, `manual` when people say so.

    retries, retry_delay: how often a task is tried again whose failure may pass by itself, and how long after; each
    further time twice as long after, up to an hour. max_active_runs: how many runs may wait for their turn on the
    source at a time. batch: drops that one run of a backfill takes; left out, as many as their files' sizes say.
    notify: who is told when a run is late, fails, finds a drop without files, or has a check that warns: e-mail
    addresses, and URLs to which a JSON document is posted. after: sources that have to have published a scheduled
    run's interval before it begins. deadline: how long after the end of its drop a scheduled run
    is late (`2 h after hi`, or `2 h`).
    """

    schedule: Literal["every", "manual"] = "every"
    owner: str = "tidemark"
    tags: tuple[str, ...] = ()
    retries: NonNegativeInt = 2
    retry_delay_us: PositiveDuration = Field(default=60_000_000, alias="retry_delay")
    max_active_runs: PositiveInt = 16
    batch: PositiveInt | None = None
    after: tuple[Identifier, ...] = ()
    deadline_us: Deadline | None = Field(default=None, alias="deadline")
    notify: tuple[Recipient, ...] = ()

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
    """What a worker may hold of rows and windows, beside Python itself and the rows of one open window; what passes it
    waits on the worker's disk. No result depends on it."""

    max_bytes: Size = 100 << 20

    @field_validator("max_bytes")
    @classmethod
    def _check_size(cls, max_bytes: int) -> int:
        if max_bytes < _LEAST_MEMORY_BYTES:
            raise refuse("1 MiB or more, as a worker sorts its rows in it", max_bytes)
        return max_bytes


class ChunkLimits(Section):
    """Where landing and merging cut an entity's rows into chunks. No answer depends on it.

    rows, bytes: a chunk takes no further row once it has as many. unsorted: the rows of a chunk whose times are in no
    order, which is scanned where another one is searched.
    """

    rows: PositiveInt = 65_536
    max_bytes: Size = Field(default=2 << 20, alias="bytes")
    unsorted: PositiveInt = 8_192

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.unsorted > self.rows:
            raise refuse(f"`unsorted` of at most `rows`, {self.rows}: no chunk has more rows", self.unsorted)
        return self


class Source(Section):
    """A checked source file, read with `spark_jobs.sources.load_source`: every name in it is declared and fits.

    delta_id: columns that tell deltas apart; left out, every row is one. sequence: columns that order rows of one time,
    before their row ids do: a log position, a sequence number; the first column counts first, null is the least.
    duplicates: which of several rows with one delta_id counts: the `first`, which has the least row id, or the `last`,
    which has the greatest sequence and, of those, the greatest row id.
    """

    source: Identifier
    description: str = ""
    timezone: Zone | None = None
    start_us: Instant = Field(alias="start")
    every: Every = DAY_US
    landing: AnyLanding
    columns: dict[Identifier, Column] = Field(min_length=1)
    unknown_columns: Literal["keep", "quarantine", "fail"] = "keep"
    timelines: NameMap
    event_time: Names
    arrival: str | None = None
    entity: str
    delta_id: Names | None = None
    duplicates: Literal["first", "last"] = "first"
    sequence: Names = ()
    windows: dict[Identifier, Window] = Field(default_factory=dict)
    state: State | None = None
    checks: dict[Identifier, DataCheck] = Field(default_factory=dict)
    compaction: Compaction | None = None
    retention: Retention = Retention()
    memory: Memory = Memory()
    chunks: ChunkLimits = ChunkLimits()
    dag: Dag = Dag()

    @field_validator("start_us", mode="before")
    @classmethod
    def _read_start(cls, start: Any, info: ValidationInfo) -> Any:
        zone = info.data.get("timezone")
        return start if zone is None else local_start(start, zone)

    @property
    def name(self) -> str:
        """The source's name: its file's name, its DAG's id, the value of `source` in every table."""
        return self.source

    @property
    def drops(self) -> Schedule:
        """The drops of this source: sequence numbers, intervals, row ids."""
        return schedule(self.start_us, self.every, self.timezone)

    @property
    def path(self) -> str:
        """The pattern of the files of a drop, relative to the landing directory; of what is read elsewhere that of the
        extracts."""
        if not isinstance(self.landing, Extract):
            return self.landing.path
        return (
            f"{self.name}/{{date}}/*"
            if self.drops.every_us % DAY_US == 0
            else f"{self.name}/{{date}}T{{hour}}{{minute}}/*"
        )

    @property
    def wait_us(self) -> int | None:
        """How long a run in Airflow waits for files of its drops, in microseconds; None: not at all."""
        return None if isinstance(self.landing, Extract) else self.landing.wait_us

    @property
    def extract(self) -> Extract | None:
        """What the drops are read from, where it is no files."""
        return self.landing if isinstance(self.landing, Extract) else None

    @property
    def brought(self) -> str:
        """What drops consist of, in a word: a file, a row of a table, or a message of a topic."""
        return {"files": "file", "table": "row", "topic": "message"}[self.landing.kind]

    @property
    def primary_timeline(self) -> str:
        """The timeline whose time is a row's event time, wherever the row has one there."""
        return self.event_time[0]

    @property
    def keeps_chains(self) -> bool:
        """Whether gold keeps the deltas of every entity as a chain: where the file says how to compact them, or where
        a state does not follow from the one before it and the new rows, as where a sequence orders rows of one time."""
        state = self.state
        if state is None:
            return False
        needs_rows = state.mode in ("upsert", "operations") or state.datatype == "float32"
        return self.compaction is not None or needs_rows or state.delete_when is not None or bool(self.sequence)

    @property
    def quarantining(self) -> dict[str, DataCheck]:
        """The checks whose breakers go to quarantine, in the order of the file: a row goes for the first it breaks."""
        return {name: check for name, check in self.checks.items() if check.treatment == "quarantine"}

    def header_name(self, column: str) -> str:
        """What the files call the declared `column`."""
        return self.columns[column].from_ or column

    def null_values(self, column: str) -> tuple[str, ...]:
        """The texts that stand for no value in the declared `column`."""
        own = self.columns[column].null_values
        return self.landing.null_values if own is None else own

    def window_time(self, window: str) -> str:
        """The timeline over which `window` runs."""
        return self.windows[window].time or self.primary_timeline

    def definition_parts(self) -> dict[str, str]:
        """A hash for each part of the definition that results depend on: `drops`, `parse`, `delta`, `state`,
        `window.<name>`, and `chains` where gold keeps them.

        Order of keys, comments, the DAG's settings, the description, the retention, the memory, the limits of
        chunks, how chains are compacted and the files' place change none.
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
        # what rejects rows decides what lands; all other checks change nothing that is published
        rejecting = {name: plain["checks"][name] for name in self.quarantining}
        if rejecting:
            parse["checks"] = {
                name: {k: v for k, v in c.items() if k not in _UNJUDGING} for name, c in rejecting.items()
            }
        delta = {key: plain[key] for key in ("timelines", "event_time", "arrival", "entity", "delta_id")}
        # what orders rows of one time changes states and windows; where it decides which rows count, what lands too
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
        for name, window in plain["windows"].items():
            parts[f"window.{name}"] = {**window, "time": self.window_time(name), **self._plugins(name), **order}
        return {name: _hash(part) for name, part in sorted(parts.items())}

    def _plugins(self, window: str) -> dict[str, Any]:
        """The plugins whose aggregates a window has: other text may compute something else."""
        calls = self.windows[window].aggregates.values()
        digests = {call.plugin.digest for call in calls if call.plugin is not None}
        return {"plugins": sorted(digests)} if digests else {}


def _hash(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]
