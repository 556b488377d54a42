"""The check of the user at the other end of a connection, before a secret is sent there.

Any user can bind a free port first. Linux lists the sockets of this machine with their users in `/proc/net/tcp` and
`tcp6`. The check is made on the connection itself, once it is established. So no other process can take the listener's
place between the check and the secret. A Unix socket needs no such check: its folder has one owner.

The check is not possible on other operating systems, which keep no such list, and for sockets of other machines. There
a certificate decides (TLS), or the settings declare the network as trusted (`TIDEMARK_PLAINTEXT`).
"""

from __future__ import annotations

import errno
import os
import pwd
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.errors import ConfigurationError
from spark_jobs.server.errors import ForeignListener

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MOST_PATH_BYTES = 106
"""The most bytes of a Unix socket's path that Java accepts, one fewer than Linux."""
_POLL_S = 0.01


def expect_trusted_listener(settings: Settings, connection: socket.socket) -> None:
    """Check that this user, root or the home's owner accepted a connection within this machine; close it otherwise.

    Raises:
        ForeignListener: another user accepted it.
        ConnectionResetError: the connection has ended, and it is unknown who accepted it.
        TimeoutError: nobody accepted it within the socket's own time limit, or `connect_timeout_s`.
    """
    here, there = connection.getsockname()[:2], connection.getpeername()[:2]
    if sys.platform != "linux" or not (ip_address(there[0]).is_loopback or there[0] == here[0]):
        return
    try:
        user = _accepted_by(there, here, connection.gettimeout() or settings.connect_timeout_s)
        if user is None:
            address = f"{there[0]}:{there[1]}"
            raise ConnectionResetError(errno.ECONNRESET, f"Connection reset by peer: {address} ended it at once")
        if user not in _trusted_users(settings):
            raise _foreign(there, user)
    except BaseException:
        connection.close()
        raise


def socket_folder(settings: Settings, folder: Path, name: str) -> Path:
    """The folder for the Unix socket `name`: `folder`, or one among the temporary files if the path is too long."""
    if len(os.fsencode(folder / name)) <= _MOST_PATH_BYTES:
        return folder
    return Path(tempfile.gettempdir()) / f"tidemark-{sha256(os.fsencode(settings.home)).hexdigest()[:16]}"


def expect_private_folder(settings: Settings, folder: Path) -> None:
    """Check that no other user may enter a folder. Among temporary files, anybody could have made one of that name.

    Raises:
        ConfigurationError: the folder has another mode or another owner.
    """
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid in _trusted_users(settings) and not status.st_mode & 0o077:
        return
    raise ConfigurationError(
        expected=f"{folder} to be a folder of mode 700 and of who runs this",
        found=f"{stat.filemode(status.st_mode)} of user {status.st_uid}",
        consequence="its socket was not used, since others could reach it or take its place",
        next_step="remove that folder, or choose a shorter path with TIDEMARK_HOME",
    )


def make_private_folder(settings: Settings, folder: Path) -> None:
    """Make a folder that no other user may enter.

    Raises:
        ConfigurationError: there is a folder of that name that other users may enter, or that is another user's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    expect_private_folder(settings, folder)


def _trusted_users(settings: Settings) -> set[int]:
    """The ids of the users who may have this installation's secrets, since they can read the files with them."""
    trusted = {0, os.geteuid()}
    with suppress(FileNotFoundError):
        trusted.add(settings.home.stat().st_uid)
    return trusted


def _accepted_by(local: tuple[str, int], remote: tuple[str, int], wait_s: float) -> int | None:
    """The id of the user whose process accepted the connection; None if this machine has no such socket.

    `local` and `remote` are the two ends as that process sees them. A connection that no process has accepted yet has
    no inode, and before Linux 6.16 it has root as its user.
    """
    deadline = time.monotonic() + wait_s
    while True:
        row = next(_rows(local, remote), None)
        if row is None:
            return None
        user, inode = row
        if inode:
            return user
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody accepted the connection to {local[0]}:{local[1]} within {wait_s:g} s")
        time.sleep(_POLL_S)


def _rows(local: tuple[str, int], remote: tuple[str, int]) -> Iterator[tuple[int, int]]:
    """The user's id and the inode of the socket with these ends. A socket of IPv6 may serve an address of IPv4."""
    wanted = set(zip(_spellings(*local), _spellings(*remote), strict=True))
    for table in _TABLES:
        with suppress(FileNotFoundError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if (fields[1], fields[2]) in wanted:
                    yield int(fields[7]), int(fields[9])


def _spellings(address: str, port: int) -> list[str]:
    """An address and a port as Linux lists them, in hexadecimal digits: words of 32 bits in the machine's byte order.

    An IPv4 address has a second spelling, that of the IPv6 address which it is mapped to."""
    packed = ip_address(address).packed
    mapped = [b"\0" * 10 + b"\xff\xff" + packed] if len(packed) == 4 else []
    return [f"{_words(each)}:{port:04X}" for each in (packed, *mapped)]


def _words(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _foreign(there: tuple[str, int], user: int) -> ForeignListener:
    address = f"{there[0]}:{there[1]}"
    return ForeignListener(
        expected=f"a process of this user at {address}",
        found=f"a process of the user {_name(user)} listening",
        consequence="nothing was sent there: no password and no token",
        next_step="find out who that is (`ss -ltnp` as root), have it end or choose another port, then `tidemark up`",
        address=address,
        user=user,
    )


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def trace_extension(settings: Settings) -> dict[str, Any]:
    """The extension for a request of httpx that checks each connection opened for that request."""
    import httpx

    def look(event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            try:
                expect_trusted_listener(settings, info["return_value"].get_extra_info("socket"))
            except OSError as error:
                # Airflow's client tries again after httpx's own errors
                raise httpx.ConnectError(str(error)) from error

    return {"trace": look}
