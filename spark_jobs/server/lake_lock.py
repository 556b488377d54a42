"""One writing JVM per lake: an exclusive lock on the lake's root, held for the JVM's lifetime.

Each version of a table is made once, whichever process commits (decision 0017). But turns and leases of runs are in a
home, and so is the catalog. Two installations on one lake would run a source at the same time, and each fence the other
off. Hence the launcher of a JVM that may write takes this lock first:

- `tidemark up` takes it and passes the open file to the JVM. So it is held until the JVM itself has ended, even if the
  launcher is killed;
- a job in a JVM of its own (`spark-submit`, classic mode) takes it in the Python process that drives that JVM.

The lock is the kernel's (`flock`): no crash leaves a stale one. The file's content only describes the holder. For a
lake in an object store, the lock file is in `home` and refuses second writers of that home; a claim in the lake refuses
those of other homes (`storage.coordination.lake_claims`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.server.errors import LakeBusy

if TYPE_CHECKING:
    from spark_jobs.storage.coordination.lake_claims import LakeClaim

LOCK_NAME = ".tidemark-writer.lock"

RELEASE_S = 10.0
"""The seconds that a sign of life under way gets to end before the claim does."""
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
    """The exclusive right to run a JVM that writes the lake. Take it with `acquire`, give it up with `release`.

    Whoever holds it for longer than a moment calls `keep_claim`: the claim on a lake in an object store is lost without
    signs of life.
    """

    def __init__(self, descriptor: int, path: Path, claim: LakeClaim | None, loss_file: Path) -> None:
        self._descriptor = descriptor
        self.path = path
        self._claim = claim
        self._loss_file = loss_file
        self._released = threading.Event()
        self._beating: threading.Thread | None = None

    @classmethod
    def acquire(cls, settings: Settings, report: Callable[[str], None] = lambda _: None) -> Self:
        """Take the lock, after at most `PROBE_WAIT_S` seconds. A lake in an object store is claimed, too, which takes a
        minute if the home that had it is lost: `report` is called with words about that.

        Raises:
            LakeBusy: another process holds the lock; the error names it.
            LakeClaimed: another home has the lake; the error names it.
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
        try:
            claim = _claim(settings, report)
        except BaseException:
            os.close(descriptor)
            raise
        lock = cls(descriptor, path, claim, _loss_file(settings))
        _loss_file(settings).unlink(missing_ok=True)
        lock.record(os.getpid(), " ".join(sys.orig_argv))
        return lock

    def keep_claim(self, on_lost: Callable[[TidemarkError], None]) -> Self:
        """Give signs of life from now on, in a thread, until `release`; a lake on a disk needs none. Returns the lock.

        `on_lost` is called in that thread with the error `claim_lost` if this home no longer has the lake. It must end
        all work on the lake at once.
        """
        if self._claim is not None:
            beat = threading.Thread(target=self._beat, args=(self._claim, on_lost), daemon=True, name="lake-claim")
            self._beating = beat
            beat.start()
        return self

    def _beat(self, claim: LakeClaim, on_lost: Callable[[TidemarkError], None]) -> None:
        from spark_jobs.storage.coordination import lake_claims

        while not self._released.wait(lake_claims.BEAT_S):
            try:
                claim.beat()
            except lake_claims.ClaimLost as lost:
                self._claim = None
                self._loss_file.write_text(lost.sentence())
                on_lost(lost)
                return

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
        """Close this process's copy of the open file. The lock ends with the last process that has a copy open; the
        claim ends now."""
        self._released.set()
        if self._beating is not None:
            # a beat that is under way would be written over the end
            self._beating.join(RELEASE_S)
        if self._claim is not None:
            self._claim.release()
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def interrupt_process(lost: TidemarkError) -> None:
    """End the work of this process as an interrupt does: another home may write the lake now."""
    sys.stderr.write(f"{lost.sentence()}\n")
    os.kill(os.getpid(), signal.SIGINT)


def loss(settings: Settings) -> str | None:
    """A sentence about how this home lost its lake to another one; None if it has not, or has started again since."""
    path = _loss_file(settings)
    return path.read_text() if path.exists() else None


def _loss_file(settings: Settings) -> Path:
    return settings.server_dir / "claim-lost"


def _claim(settings: Settings, report: Callable[[str], None]) -> LakeClaim | None:
    """The claim of this home on a lake in an object store; None for a lake on a disk."""
    if settings.lake_path is not None:
        return None
    from spark_jobs.storage.coordination.lake_claims import Claimant, LakeClaim

    claimant = Claimant(_home_id(settings), str(settings.home), socket.gethostname())
    return LakeClaim.take(settings.lake, claimant, report=report)


def _home_id(settings: Settings) -> str:
    """The id of a home, which is made with its first claim. A path does not name a home: hosts may have equal ones."""
    path = settings.server_dir / "home-id"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(uuid4().hex)
    return path.read_text()


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
