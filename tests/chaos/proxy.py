"""A proxy between clients and the lake server, whose connections can be cut.

`python -m tests.chaos.proxy FROM:TO …` listens on each FROM and passes to TO: ports, or paths of Unix sockets. SIGUSR1
resets all connections there are; SIGUSR2 does so too, and refuses new ones for `REFUSED_S`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
import sys
import time

REFUSED_S = 3.0
_connections: set[asyncio.StreamWriter] = set()
_refused_until = 0.0


async def _serve(pairs: list[tuple[str, str]]) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, _cut)
    loop.add_signal_handler(signal.SIGUSR2, _cut, REFUSED_S)
    for ours, theirs in pairs:

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: str = theirs) -> None:
            await _pass(reader, writer, to)

        if ours.isdigit():
            await asyncio.start_server(accept, "127.0.0.1", int(ours))
        else:
            await asyncio.start_unix_server(accept, ours)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def _cut(refused_s: float = 0.0) -> None:
    global _refused_until  # noqa: PLW0603
    _refused_until = time.monotonic() + refused_s
    for writer in list(_connections):
        _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as a network does that fails: with a reset, whatever is on its way."""
    connection = writer.get_extra_info("socket")
    # one that has ended by itself has no socket left
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: str) -> None:
    if time.monotonic() < _refused_until:
        _reset(writer)
        return
    try:
        opening = asyncio.open_connection("127.0.0.1", to) if to.isdigit() else asyncio.open_unix_connection(to)
        their_reader, their_writer = await opening
    except OSError:
        _reset(writer)
        return
    ends = {writer, their_writer}
    _connections.update(ends)
    try:
        await asyncio.gather(_copy(reader, their_writer), _copy(their_reader, writer))
    finally:
        _connections.difference_update(ends)
        for end in ends:
            end.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        return


if __name__ == "__main__":
    asyncio.run(_serve([(ours, theirs) for ours, _, theirs in (pair.partition(":") for pair in sys.argv[1:])]))
