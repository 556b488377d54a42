"""Leases: an attempt of a stage has its source to itself, and counts its token.

Tokens (see `delta.fences`) are counted in a file beside the lake, under an exclusive lock that the attempt has while it
runs. So attempts of one source on one machine also wait for each other instead of overlapping. The file can be lost:
the tokens that the lake has seen take precedence over it (`jobs.tokens`).
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.delta.fences import Fence, Superseded

POLL_S = 0.2

WAIT_S = 600.0
"""Seconds that an attempt waits for another one of its source: longer than any stage of the sample takes."""

_NEVER_TAKEN: dict[str, Any] = {
    "token": 0,
    "run_id": None,
    "pid": None,
    "staged": {},
    "verdicts": [],
    "spent": {},
    "stages": [],
    "past": [],
}


_OF_RUN = ("past", "spent", "staged", "verdicts", "stages")
"""The entries of a lease that a run's stages take over from each other."""


class SourceBusy(TidemarkError):
    """Another attempt works on the source and did not end in time. Facts: `source`, `holder`."""

    code = "source_busy"


class LeaseLost(TidemarkError):
    """The file of a source's lease was removed while an attempt had the lease. Facts: `source`."""

    code = "lease_lost"


@dataclass
class Lease:
    """The lease of a source by one attempt: its fence, and data that finished stages of the run keep for the next ones.

    `staged`: the tokens under which these stages wrote, by stage. `verdicts`: the findings of their gates, until a
    table has them. `spent`: rows that this run landed and seconds of its stages. `past`: (rows, seconds) of the last
    whole runs. `stages`: the report of each finished stage of this run.
    """

    path: Path
    run_id: str | None
    fence: Fence
    staged: dict[str, int] = field(default_factory=dict)
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)
    past: list[tuple[int, float]] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)

    def record(self, stage: str) -> None:
        """Note that `stage` is done under this attempt's token, which the run's publication will name."""
        self.staged[stage] = self.fence.token

    def next_token(self) -> None:
        """Take the next token. Until `save` only this process has it, as in a rehearsal of several stages."""
        self.fence = Fence(self.fence.source, self.fence.token + 1)

    def rise_above(self, token: int) -> None:
        """Take a token greater than `token`, which the lake has seen. The lease lagged behind the lake, so the finished
        stages in it are not of this run; they are dropped."""
        self.fence = Fence(self.fence.source, token + 1)
        self.staged.clear()
        self.verdicts.clear()
        self.save()

    def save(self) -> None:
        """Write the lease in place: the lock is on this very file, so no other file may replace it.

        Raises:
            LeaseLost: the file is gone, so the lock on it protects nothing.
        """
        lease = {
            "token": self.fence.token,
            "run_id": self.run_id,
            "pid": os.getpid(),
            "staged": self.staged,
            "verdicts": self.verdicts,
            "spent": self.spent,
            "stages": self.stages,
            "past": self.past,
        }
        try:
            handle = self.path.open("r+")
        except FileNotFoundError:
            raise LeaseLost(
                expected=f"{self.path} to stay while {self.fence.source} is worked on",
                found="that somebody has removed it",
                consequence="published tables are whole: as before the run, or as it has published them",
                next_step="do the same again: the lake says how to go on",
                source=self.fence.source,
            ) from None
        with handle:
            handle.write(json.dumps(lease))
            handle.truncate()
            handle.flush()
            os.fsync(handle.fileno())


@contextmanager
def take(folder: Path, *, source: str, run_id: str, starts_run: bool, wait_s: float) -> Iterator[Lease]:
    """Hold `source` for one attempt of a stage of run `run_id`.

    `starts_run` is true for a run's first stage, which takes the source over from whatever run had it. A later stage
    needs its run to be the one that started last: between two stages another run may have landed more, and *its*
    stages will publish everything.

    Raises:
        SourceBusy: another attempt held the source for longer than `wait_s` seconds.
        Superseded: another run started on the source since this run's first stage.
    """
    with _locked(folder, source, wait_s) as path:
        lease = _read(path)
        if not starts_run and lease["run_id"] not in (None, run_id):
            raise Superseded(
                expected=f"run {run_id} to be the last one started on {source}",
                found=f"run {lease['run_id']}",
                consequence="this stage did nothing; the other run publishes the rows that this one landed",
                next_step="nothing, if the other run succeeds; else start this run again",
                source=source,
                run_id=run_id,
                by=lease["run_id"],
            )
        kept = {name: lease[name] for name in (("past",) if starts_run else _OF_RUN)}
        taken = Lease(path, run_id, Fence(source, lease["token"] + 1), **kept)
        taken.save()
        yield taken


@contextmanager
def visit(folder: Path, *, source: str, wait_s: float) -> Iterator[Lease]:
    """Hold `source` between two stages, for work that does not disturb the run that has it: the run continues
    afterwards.

    Raises:
        SourceBusy: an attempt held the source for longer than `wait_s` seconds.
    """
    with _locked(folder, source, wait_s) as path:
        lease = _read(path)
        kept = {name: lease[name] for name in _OF_RUN}
        taken = Lease(path, lease["run_id"], Fence(source, lease["token"] + 1), **kept)
        taken.save()
        yield taken


@contextmanager
def _locked(folder: Path, source: str, wait_s: float) -> Iterator[Path]:
    """The source's lease file, locked while the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{source}.lease"
    with path.open("a+") as handle:
        _lock(handle.fileno(), path, source=source, wait_s=wait_s)
        yield path


@contextmanager
def hold_still(folder: Path, *, source: str, wait_s: float = WAIT_S) -> Iterator[Lease]:
    """Keep attempts off `source` while the block looks at it. Yields the lease in its file, and writes nothing.

    Others may look at the same time. A source that no run ever took has no lease file, so nothing has to be locked.

    Raises:
        SourceBusy: an attempt held the source for longer than `wait_s` seconds.
    """
    path = folder / f"{source}.lease"
    if not path.exists():
        yield _as_lease(path, source)
        return
    with path.open("r") as handle:
        _lock(handle.fileno(), path, source=source, wait_s=wait_s, kind=fcntl.LOCK_SH)
        yield _as_lease(path, source)


def is_at_work(folder: Path, source: str) -> bool:
    """True if an attempt has the source's lease now."""
    return is_locked(folder / f"{source}.lease")


def is_locked(path: Path) -> bool:
    """True if a process has locked this file for itself alone; nothing waits, and nothing is written."""
    try:
        with path.open("r") as handle:
            fcntl.flock(handle.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _as_lease(path: Path, source: str) -> Lease:
    fields = _read(path)
    return Lease(path, fields["run_id"] or "", Fence(source, fields["token"]), past=fields["past"])


def _lock(descriptor: int, path: Path, *, source: str, wait_s: float, kind: int = fcntl.LOCK_EX) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = _read(path)
                raise SourceBusy(
                    expected=f"{source} to be free within {wait_s:.0f} s",
                    found=f"run {holder['run_id']} at work on it (process {holder['pid']})",
                    next_step="wait for that run, or end it",
                    source=source,
                    holder=holder["run_id"],
                ) from None
            time.sleep(POLL_S)


def _read(path: Path) -> dict[str, Any]:
    """The content of a lease file. A missing or cut-off file gives the defaults: the lake has the last word on
    tokens."""
    try:
        lease = json.loads(path.read_text()) if path.exists() else {}
    except ValueError:
        lease = {}
    return _NEVER_TAKEN | (lease if isinstance(lease, dict) else {})
