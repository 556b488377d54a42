"""Recipients of alerts on the loopback: a mail server and webhooks that keep what they are sent."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Sink(socketserver.StreamRequestHandler):
    """As much of SMTP as takes a message in."""

    def handle(self) -> None:
        self._say("220 sink")
        while line := self.rfile.readline().decode().strip():
            word = line[:4].upper()
            if word == "DATA":
                self._say("354 go on")
                lines = []
                while (text := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                    lines.append(text)
                self.server.received.append(message_from_string("\n".join(lines)))  # type: ignore[attr-defined]
            self._say("221 bye" if word == "QUIT" else "250 ok")
            if word == "QUIT":
                return

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class Hook(BaseHTTPRequestHandler):
    """A webhook that keeps the documents, and refuses those to `/closed`."""

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/closed":
            self.server.received.append(json.loads(content))  # type: ignore[attr-defined]
        self.send_response(410 if self.path == "/closed" else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing on the test's output."""


@contextmanager
def serving(server: Any) -> Iterator[Any]:
    server.received = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def mail_server() -> Iterator[Any]:
    """A server whose `received` are the messages."""
    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Sink)) as server:
        yield server


@contextmanager
def webhooks() -> Iterator[Any]:
    """A server whose `received` are the documents."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Hook)) as server:
        yield server


def url(hook: Any, path: str = "/hook") -> str:
    return f"http://127.0.0.1:{hook.server_address[1]}{path}"
