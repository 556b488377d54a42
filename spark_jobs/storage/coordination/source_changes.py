"""The sources that were renamed, dropped or reset, and the progress of each such change."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.descriptions.people_tables import FINISHED, SOURCE_CHANGES, last_steps
from spark_jobs.storage.descriptions.tables import DATABASES
from spark_jobs.storage.lakes.lake import Lake, TableReader

RENAME, DROP, RESET = "rename", "drop", "reset"
BEGUN = "begun"
"""The first step of every change; the last is FINISHED."""


class SourceChangeUnfinished(TidemarkError):
    """A rename, drop or reset of a source was begun and is not finished. Facts: `source`, `change`, `kind`."""

    code = "source_change_unfinished"


@dataclass(frozen=True, slots=True)
class SourceChange:
    """One change with the step that it has reached; its fields are columns of `bronze.source_changes`."""

    source: str
    change: str
    kind: str
    new_name: str | None
    step: str
    number: int
    archive: str | None
    changed_by: str

    @property
    def command(self) -> str:
        """The command that continues the change."""
        if self.kind == RENAME:
            return f"tidemark source rename {self.source} {self.new_name}"
        return f"tidemark source {self.kind} {self.source} --purge"

    def refuse(self) -> SourceChangeUnfinished:
        """The error that refuses to do anything else with the source until the change is finished."""
        return SourceChangeUnfinished(
            expected=f"every change of {self.source} to be finished",
            found=f"a {self.kind} that {self.changed_by} began, interrupted after the step {self.step!r}",
            consequence="nothing was done: tables may lack some of their rows",
            next_step=f"`{self.command}` continues it",
            source=self.source,
            change=self.change,
            kind=self.kind,
        )


def source_changes(lake: TableReader) -> list[SourceChange]:
    """All changes, oldest first; empty if there is no table of them yet."""
    if not lake.folder.is_stored(SOURCE_CHANGES.database, SOURCE_CHANGES.table):
        return []
    last = last_steps(lake.records(SOURCE_CHANGES), "change")
    return [SourceChange(**{name: row[name] for name in SourceChange.__slots__}) for row in last]


def unfinished_change(lake: TableReader, source: str) -> SourceChange | None:
    """The unfinished change of the source, or that of another source which gets this name; None if there is none."""
    for change in source_changes(lake):
        if change.step != FINISHED and source in (change.source, change.new_name):
            return change
    return None


def check_unchanging(lake: Lake, source: str) -> None:
    """Refuse to go on while the source is being renamed, dropped or reset.

    Raises:
        SourceChangeUnfinished: such a change was begun, and interrupted.
    """
    change = unfinished_change(lake, source)
    if change is not None:
        raise change.refuse()


def begin_change(
    lake: Lake, source: str, kind: str, changed_by: str, *, new_name: str | None = None, archive: str | None = None
) -> SourceChange:
    """Begin a change and record it, or return the unfinished one if it is the same.

    Raises:
        SourceChangeUnfinished: another one is under way.
    """
    before = unfinished_change(lake, source) or (unfinished_change(lake, new_name) if new_name else None)
    if before is not None:
        if (before.source, before.kind, before.new_name) != (source, kind, new_name):
            raise before.refuse()
        return before
    lake.catalog.ensure({SOURCE_CHANGES.database: DATABASES[SOURCE_CHANGES.database]}, [SOURCE_CHANGES])
    fresh = SourceChange(source, f"{kind}-{uuid.uuid4().hex[:12]}", kind, new_name, "", 0, archive, changed_by)
    return record_change(lake, fresh, BEGUN)


def record_change(lake: Lake, change: SourceChange, step: str) -> SourceChange:
    """Record that the change has reached `step`; returns it with that step."""
    after = replace(change, step=step, number=change.number + 1)
    row = {name: getattr(after, name) for name in SourceChange.__slots__}
    lake.record(SOURCE_CHANGES, [{**row, "recorded_at": datetime.now(UTC)}])
    return after
