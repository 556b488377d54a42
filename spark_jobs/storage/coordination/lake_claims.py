"""The claim of one home on a lake in an object store: no second home may write the lake at the same time.

Turns, leases and the catalog are in a home, so two homes on one lake would run a source at once and hand out the same
tokens. A lake on a disk has a lock of the kernel (`server.lake_lock`). A lake in an object store has a table without
rows, `_homes`, each of whose versions is one claim: a version is put only where there is none, so of two homes that
claim at once one succeeds. The newest claim counts. Its home shows that it lives by a *beat*, a number that grows in an
object beside the table.

A home that finds a claim of another one watches its beat for LOST_AFTER_S seconds of its own monotonic clock. A beat
that changes is a refusal; one that does not is a lost home, whose lake is taken over. A home that cannot beat for
SILENT_S seconds ends its work by itself, before another one may take over. A commit of it that is still under way has
a smaller token than any of the new home (`jobs.tokens`), and is not made once the new home has committed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Self

import pyarrow as pa
import pyarrow.fs as pa_fs

from spark_jobs.errors import TidemarkError
from spark_jobs.s3 import environment_options, with_scheme
from spark_jobs.storage.delta.log_files import LOG_DIR, version_file
from spark_jobs.storage.delta.places import object_files

HOMES = "_homes"
"""The folder of the table of claims below the lake's root."""
BEAT_S = 10.0
"""Seconds between two beats."""
SILENT_S = 40.0
"""Seconds without a beat after which a home gives its claim up: well before LOST_AFTER_S."""
LOST_AFTER_S = 60.0
"""Seconds for which another home's beat must not change until its claim may be taken over."""
_LOOK_S = 2.0
"""Seconds between two looks at another home's beat."""
_WITHIN_S = 3.0
"""The seconds for which a request is repeated that the store refuses: a beat must fail long before SILENT_S."""
_CLAIM = "tidemark_claim"
"""The entry of a commit with the claim, as JSON."""
_ENDED = "ended"
"""The content of a beat whose home has ended in order."""
_SCHEMA = pa.schema([("claim", pa.string())])

Wait = Callable[[float], None]


class LakeClaimed(TidemarkError):
    """Another home has the lake and lives. Facts: `home`, `host`, `since`."""

    code = "lake_claimed"


class ClaimLost(TidemarkError):
    """This home no longer has the lake: another one took it over, or no beat could be written. Facts: `lake`."""

    code = "claim_lost"


@dataclass(frozen=True, slots=True)
class Claimant:
    """A home that claims a lake: its id, its path, its host, and the time of the claim (ISO 8601, UTC)."""

    id: str
    home: str
    host: str
    since: str = ""


class LakeClaim:
    """The claim of this home. Take it with `take`, call `beat` every BEAT_S seconds, and give it up with `release`."""

    def __init__(self, place: str, files: pa_fs.FileSystem, version: int) -> None:
        self._place = place
        self._files = files
        self._version = version
        self._beats = 0
        self._last_beat = time.monotonic()
        self._write(str(self._beats))

    @classmethod
    def take(
        cls, place: str, claimant: Claimant, wait: Wait = time.sleep, report: Callable[[str], None] = lambda _: None
    ) -> Self:
        """Claim the lake at `place`, an S3 URI. It takes LOST_AFTER_S if a lost home had it; `report` is called with
        words about that.

        Raises:
            LakeClaimed: another home has the lake and lives, or claimed it at the same time.
        """
        table = f"{with_scheme(place, 's3').rstrip('/')}/{HOMES}"
        files = object_files(table, _WITHIN_S)
        version, newest = _newest(table)
        if newest is not None and newest.id != claimant.id:
            _expect_lost(files, version, newest, wait, report)
        claim = json.dumps(asdict(claimant) | {"since": datetime.now(UTC).isoformat(timespec="seconds")})
        if not _put(table, version, claim):
            _, other = _newest(table)
            raise _refusal(other or claimant, "claimed it at the same time")
        taken = cls(table, files, version + 1)
        if version >= 0:
            _remove(files, _beat_of(version))
        return taken

    def beat(self) -> None:
        """Show that this home lives. An error of the store counts once no beat was written for SILENT_S seconds.

        Raises:
            ClaimLost: another home has taken the lake over, or there was no beat for too long.
        """
        try:
            following = self._files.get_file_info(f"{LOG_DIR}/{version_file(self._version + 1)}")
            if following.type != pa_fs.FileType.NotFound:
                raise self._loss("another home has taken it over")
            self._write(str(self._beats + 1))
        except OSError as error:
            silent_s = time.monotonic() - self._last_beat
            if silent_s > SILENT_S:
                raise self._loss(f"the store refused for {silent_s:.0f} s: {error}") from error
            return
        self._beats, self._last_beat = self._beats + 1, time.monotonic()

    def release(self) -> None:
        """Give the claim up, so that another home need not wait. A store that refuses leaves the wait to it."""
        try:
            self._write(_ENDED)
        except OSError:
            return

    def _write(self, content: str) -> None:
        with self._files.open_output_stream(_beat_of(self._version)) as stream:
            stream.write(content.encode())

    def _loss(self, finding: str) -> ClaimLost:
        return ClaimLost(
            expected=f"the lake {self._place.removesuffix(f'/{HOMES}')} to be this home's",
            found=finding,
            consequence="the lake server and all runs of this home end, before they meet those of another home",
            next_step="find out which home is to have the lake, and start that one with `tidemark up`",
            lake=self._place,
        )


def _options(table: str) -> dict[str, str]:
    return environment_options(table, _WITHIN_S)


def _newest(table: str) -> tuple[int, Claimant | None]:
    """The newest version of the table of claims with its claim; -1 and None if there is no table."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        opened = DeltaTable(table, storage_options=_options(table))
    except TableNotFoundError:
        return -1, None
    (commit,) = opened.history(1)
    return opened.version(), Claimant(**json.loads(commit[_CLAIM]))


def _put(table: str, version: int, claim: str) -> bool:
    """Put a claim as the version after `version`; False if there is one."""
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError

    properties = CommitProperties({_CLAIM: claim}, max_commit_retries=0)
    try:
        if version < 0:
            DeltaTable.create(
                table,
                _SCHEMA,
                mode="error",
                storage_options=_options(table),
                commit_properties=properties,
            )
        else:
            opened = DeltaTable(table, version=version, storage_options=_options(table))
            opened.create_write_transaction([], "append", _SCHEMA, commit_properties=properties)
    except CommitFailedError:
        return False
    except DeltaError:
        # `create` looks for a table before it commits
        if _newest(table)[0] > version:
            return False
        raise
    return True


def _expect_lost(
    files: pa_fs.FileSystem, version: int, other: Claimant, wait: Wait, report: Callable[[str], None]
) -> None:
    """Watch the beat of another home's claim until it is known to be lost; raise LakeClaimed if it beats."""
    first = beat = _read(files, _beat_of(version))
    waited_s = 0.0
    if beat != _ENDED:
        report(
            f"the home {other.home} on {other.host} has had this lake since {other.since}; if it gives no sign of life"
            f" for {LOST_AFTER_S:.0f} s, this home takes the lake over"
        )
    while beat != _ENDED and waited_s < LOST_AFTER_S:
        wait(_LOOK_S)
        waited_s += _LOOK_S
        beat = _read(files, _beat_of(version))
        if beat not in (first, _ENDED):
            raise _refusal(other, "gives signs of life")


def _refusal(other: Claimant, finding: str) -> LakeClaimed:
    return LakeClaimed(
        expected="a lake that no other home writes",
        found=f"the home {other.home} on {other.host}, which has had it since {other.since} and {finding}",
        consequence="nothing was started or written",
        next_step="give each home a lake of its own; or end the other home with `tidemark down` there, and do this"
        f" again. A home that is lost is passed over after {LOST_AFTER_S:.0f} s",
        home=other.home,
        host=other.host,
        since=other.since,
    )


def _beat_of(version: int) -> str:
    return f"beats/{version}"


def _read(files: pa_fs.FileSystem, path: str) -> str | None:
    """The content of a beat; None if there is none."""
    try:
        with files.open_input_file(path) as stream:
            content: bytes = stream.read()
    except FileNotFoundError:
        return None
    return content.decode()


def _remove(files: pa_fs.FileSystem, path: str) -> None:
    """Remove the beat of an earlier claim; a store that refuses leaves one small object."""
    try:
        files.delete_file(path)
    except OSError:
        return
