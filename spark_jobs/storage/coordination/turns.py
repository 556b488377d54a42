"""Turns: whole runs of a source follow one another, whatever starts them.

A run has its source from its first stage to its last; the next run waits until then. A run of one process has a lock
that ends with the process, however it ends. A run whose stages are processes of their own (Airflow's tasks) is written
down instead, and counts as long as its driver reports that it is on. Runs in line go in the order of their drops. But a
backfill lets every other run go first whose drops follow on those that have been run.

Leases and fences (`fence`) keep single attempts apart; written rows stay right without turns. But a run that another
run overtakes between two stages has to give way, and one that goes before its turn leaves drops out.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from spark_jobs.storage.coordination.leases import SourceBusy, is_at_work, is_locked

POLL_S = 1.0

PRESENT_S = 60.0
"""Seconds that a run stays in line without a sign of life; a waiting run gives one each time that it looks."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One run's turn on a source: `drops` is its interval as people call it, `lo_us` the start of its first drop.

    `staged`: each stage of the run is a process of its own. `first`: it goes before runs that are not `first`, since it
    is no backfill and leaves no drop out.
    """

    run_id: str
    lo_us: int
    drops: str
    staged: bool = False
    first: bool = False

    def __str__(self) -> str:
        return f"run {self.run_id} of {self.drops}"


@dataclass(frozen=True, slots=True)
class CurrentRun:
    """The run that has its turn on a source.

    `is_at_work`: a process works on it now. A run whose stages are processes of their own may also be between two of
    them, or its driver may have cut it off; nobody but the driver can say which.
    """

    turn: Turn
    is_at_work: bool


class Driver(Protocol):
    """The driver of runs whose stages are processes of their own."""

    def is_on(self, run_id: str) -> bool:
        """True if this run has begun or will, and has not ended."""

    def remark(self) -> str:
        """A remark on the run that was asked about last: why it is uncertain that the run is on, or why it makes no
        progress; else empty."""

    def earlier_run(self, lo_us: int) -> str | None:
        """The name of a run on its way whose drops begin before `lo_us`, if there is one."""


class NoDriver:
    """A driver without any runs."""

    def is_on(self, run_id: str) -> bool:
        """Never."""
        return False

    def remark(self) -> str:
        """None."""
        return ""

    def earlier_run(self, lo_us: int) -> str | None:
        """None."""
        return None


class Line:
    """The line before a source, seen by one run that wants its turn. Files: `<folder>/<source>.turn` and `.line`."""

    def __init__(self, folder: Path, source: str, turn: Turn, driver: Driver) -> None:
        self._path = folder / f"{source}.turn"
        self._line = folder / f"{source}.line"
        self._turn = turn
        self._driver = driver
        self._place = self._line / hashlib.sha256(turn.run_id.encode()).hexdigest()[:16]
        self._lock: IO[str] | None = None
        self._placed = self._place.exists()

    def has_turn(self) -> bool:
        """True if the run has its turn already: this attempt or one before it took it."""
        holder = _read(self._path)
        return self._lock is not None or (holder is not None and holder.run_id == self._turn.run_id)

    def step(self) -> str | None:
        """Take the turn if it is free and no run in line is before this one; else stay in line. Returns the run that
        this one waits for, None if it has the turn."""
        if self._lock is not None:
            return None
        if not self._placed and not self._turn.first and not self.has_turn():
            # a run without a place lets runs with earlier drops arrive; no run waits for a run without a place
            earlier = self._driver.earlier_run(self._turn.lo_us)
            if earlier is not None:
                return earlier
        self.keep_place()
        with ExitStack() as stack:
            handle = stack.enter_context(self._path.open("a+"))
            try:
                fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return str(_read(self._path) or "a run that is just starting")
            before = self._before()
            if before is not None:
                return before
            _write(handle, self._turn)
            self.leave_line()
            if not self._turn.staged:
                stack.pop_all()
                self._lock = handle
        return None

    def leave_line(self) -> None:
        """Leave the line: the run waits no longer."""
        self._place.unlink(missing_ok=True)
        self._placed = False

    def end(self) -> None:
        """End the turn, since the run is over: the next run may go."""
        if self._lock is not None:
            _write(self._lock, None)
            # also where a child process has inherited the file
            fcntl.flock(self._lock.fileno(), fcntl.LOCK_UN)
            self._lock.close()
            self._lock = None
        else:
            end_turn(self._path.parent, self._path.stem, self._turn.run_id)

    def keep_place(self) -> None:
        """Join the line, or give a sign of life."""
        self._line.mkdir(parents=True, exist_ok=True)
        self._placed = True
        waiting = _read_place(self._place)
        since = waiting.get("since", time.monotonic())
        fresh = self._place.with_suffix(".new")
        fresh.write_text(json.dumps({**asdict(self._turn), "since": since, "seen": _clock()}))
        fresh.rename(self._place)

    def _before(self) -> str | None:
        """The run that has the turn, or is in line before this one; None if there is none."""
        holder = _read(self._path)
        if holder is not None and holder.run_id == self._turn.run_id:
            return None
        if holder is not None and holder.staged and self._driver.is_on(holder.run_id):
            remark = self._driver.remark()
            return f"{holder} ({remark})" if remark else str(holder)
        first = min(self._present(), default=None)
        if first is None or first[3] == self._turn.run_id:
            return None
        return str(Turn(first[3], first[1], first[4]))

    def _present(self) -> Iterator[tuple[bool, int, float, str, str]]:
        """(goes after others, start of the first drop, since when, run, drops) of each run in line. A run without a
        recent sign of life loses its place."""
        for place in self._line.iterdir():
            if place.suffix:
                continue
            waiting = _read_place(place)
            with suppress(KeyError):
                if not _is_recent(waiting["seen"]):
                    place.unlink(missing_ok=True)
                    continue
                later = not waiting.get("first", False)
                yield later, waiting["lo_us"], waiting["since"], waiting["run_id"], waiting["drops"]


@contextmanager
def hold_turn(
    folder: Path,
    source: str,
    turn: Turn,
    *,
    driver: Driver,
    wait_s: float | None = None,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Iterator[None]:
    """Give the source to one run of this process; `on_wait` is called with the run that it waits for, whenever that
    changes.

    Raises:
        SourceBusy: other runs had it for longer than `wait_s` seconds; None waits for as long as it takes.
    """
    line = Line(folder, source, turn, driver)
    deadline = None if wait_s is None else time.monotonic() + wait_s
    reported = None
    try:
        while (whom := line.step()) is not None:
            if deadline is not None and time.monotonic() >= deadline:
                raise SourceBusy(
                    expected=f"{source} to be free within {wait_s:.0f} s",
                    found=whom,
                    consequence="nothing was run",
                    next_step="wait for that run, or end it",
                    source=source,
                    holder=whom,
                )
            if whom != reported:
                on_wait(whom)
                reported = whom
            time.sleep(POLL_S)
        yield
    finally:
        line.leave_line()
        line.end()


def end_turn(folder: Path, source: str, run_id: str) -> None:
    """End the turn of a run whose stages are processes of their own; nothing, if the run does not have the turn."""
    path = folder / f"{source}.turn"
    if not path.exists():
        return
    with path.open("a+") as handle, suppress(BlockingIOError):
        fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder = _read(path)
        if holder is not None and holder.run_id == run_id:
            _write(handle, None)


def current_run(folder: Path, source: str) -> CurrentRun | None:
    """The run that has its turn on the source; None if there is none, or if its process has ended."""
    path = folder / f"{source}.turn"
    holder = _read(path)
    if holder is None:
        return None
    if holder.staged:
        return CurrentRun(holder, is_at_work(folder, source))
    return CurrentRun(holder, is_at_work=True) if is_locked(path) else None


def waiting_runs(folder: Path, source: str) -> int:
    """The number of runs that wait for their turn on the source."""
    line = folder / f"{source}.line"
    places = [_read_place(place) for place in line.iterdir() if not place.suffix] if line.is_dir() else []
    return sum("seen" in place and _is_recent(place["seen"]) for place in places)


def _clock() -> list[str | float]:
    """The present time for other processes of this machine: its boot, and a monotonic clock in seconds. So no run loses
    its place when the clock is set or the machine has slept."""
    return [_boot(), time.monotonic()]


def _is_recent(seen: list[Any]) -> bool:
    """True if a sign of life is of this boot and not older than `PRESENT_S` seconds."""
    boot, at = seen
    return bool(boot == _boot() and time.monotonic() - at <= PRESENT_S)


def _boot() -> str:
    """The id of this boot of the machine; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _read_place(path: Path) -> dict[str, Any]:
    """The entry of a run in line; empty if the run has left, or was interrupted while it wrote."""
    with suppress(FileNotFoundError, ValueError):
        return dict(json.loads(path.read_text()))
    return {}


def _write(handle: IO[str], turn: Turn | None) -> None:
    """Write the turn in place, since the lock is on this very file; None clears it."""
    handle.seek(0)
    handle.truncate()
    handle.write("" if turn is None else json.dumps(asdict(turn)))
    handle.flush()
    os.fsync(handle.fileno())


def _read(path: Path) -> Turn | None:
    with suppress(FileNotFoundError, ValueError, TypeError):
        text = path.read_text()
        return Turn(**json.loads(text)) if text else None
    return None
