"""One writing JVM per lake: an exclusive lock on the lake's root, held for the JVM's lifetime.

Each version of a table is made once, whichever process commits (decision 0017). But turns and leases of runs are in a
home, and so is the catalog. Two installations on one lake would run a source at the same time, and each fence the other
off. Hence the launcher of a JVM that may write takes this lock first:

- `tidemark up` takes it and passes the open file to the JVM. So it is held until the JVM itself has ended, even if the
  launcher is killed;
- a job in a JVM of its own (`spark-submit`, classic mode) takes it in the Python process that drives that JVM.

The lock is the kernel's (`flock`): no crash leaves a stale one. The file's content only describes the holder. For a
lake on an object store, the lock file is in `home`, and so refuses only second writers of that home.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from spark_jobs.config import Settings
from spark_jobs.server.errors import LakeBusy

LOCK_NAME = ".tidemark-writer.lock"

PROBE_WAIT_S = 0.5
"""The seconds for which `acquire` retries: `holder` itself takes the lock for some microseconds."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lake's lock: its id, its command line, and the time of taking it (ISO 8601, UTC)."""

    pid: int
    command: str
    since: str


def lock_file(settings: Settings) -> Path:
    """The file of the lock: in the lake's root, or under `home` for a lake on an object store."""
    return (settings.lake_path or settings.server_dir) / LOCK_NAME


class LakeLock:
    """The exclusive right to run a JVM that writes the lake. Take it with `acquire`, give it up with `release`."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self.path = path

    @classmethod
    def acquire(cls, settings: Settings) -> Self:
        """Take the lock, after at most `PROBE_WAIT_S` seconds.

        Raises:
            LakeBusy: another process holds the lock; the error names it.
        """
        path = lock_file(settings)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + PROBE_WAIT_S
        while not _try_lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise _busy(path)
            time.sleep(PROBE_WAIT_S / 10)
        lock = cls(descriptor, path)
        lock.record(os.getpid(), " ".join(sys.orig_argv))
        return lock

    @property
    def descriptor(self) -> int:
        """The open file. A child process that inherits it keeps the lock for as long as it lives."""
        return self._descriptor

    def record(self, pid: int, command: str) -> None:
        """Write the holder of the lock into its file, for the error of processes that are refused."""
        holder = Holder(pid, command, datetime.now(UTC).isoformat(timespec="seconds"))
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(asdict(holder)).encode(), 0)

    def release(self) -> None:
        """Close this process's copy of the open file. The lock ends with the last process that has a copy open."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def holder(settings: Settings) -> Holder | None:
    """The process that holds the lake's lock now, or None."""
    path = lock_file(settings)
    with _opened(path) as descriptor:
        if descriptor is None or _try_lock(descriptor, fcntl.LOCK_SH):
            return None
    return _read_holder(path)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(path: Path) -> Holder:
    try:
        return Holder(**json.loads(path.read_text()))
    except (ValueError, TypeError):  # the holder has truncated the file, and not yet written it
        return Holder(0, "unknown", "unknown")


def _busy(path: Path) -> LakeBusy:
    other = _read_holder(path)
    return LakeBusy(
        expected="no other process that may write this lake",
        found=f"process {other.pid} ({other.command[:200]}), since {other.since}",
        next_step="let it finish, or end it (`tidemark down` ends the lake server), or go through the lake server"
        " with TIDEMARK_SPARK=connect",
        lock_file=str(path),
        **asdict(other),
    )
