"""A message of a topic as one line of NDJSON. A value that is no record becomes a line that is none: it lands in
quarantine."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_BLANK = b" \t\r\n"


@dataclass(frozen=True)
class Message:
    """A message as Kafka has it."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None


@dataclass(frozen=True)
class LineMaker:
    """The way in which messages become lines. `header`: the columns of CSV, none for JSON. `metadata`: the parts of a
    message that are added to a record. `skips_tombstones`: true if a message without a value has no line."""

    header: tuple[str, ...] = ()
    delimiter: str = ","
    metadata: tuple[str, ...] = ()
    skips_tombstones: bool = False

    def line(self, message: Message) -> bytes | None:
        """The message's line, without its end; None if it has none."""
        value = message.value
        if value is None:
            return None if self.skips_tombstones else b"null"
        if not value.strip(_BLANK):
            # a line of blanks would be skipped without a reject
            return _no_record(value)
        if self.header:
            return self._of_csv(value, message)
        # between the tokens of JSON a line end is a blank; within a text of JSON it is not allowed
        line = value.replace(b"\n", b" ").replace(b"\r", b" ").strip(_BLANK)
        if not self.metadata or not line.startswith(b"{"):
            return line
        added = json.dumps(self._metadata_of(message), ensure_ascii=False).encode("utf-8", "replace")
        members = line[1:].lstrip(_BLANK)
        return added[:-1] + (b"" if members.startswith(b"}") else b", ") + members

    def _of_csv(self, value: bytes, message: Message) -> bytes:
        try:
            rows = list(csv.reader([value.decode()], delimiter=self.delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error):
            rows = []
        if len(rows) != 1 or len(rows[0]) != len(self.header):
            return _no_record(value)
        record = {**dict(zip(self.header, rows[0], strict=True)), **self._metadata_of(message)}
        return json.dumps(record, ensure_ascii=False).encode()

    def _metadata_of(self, message: Message) -> Mapping[str, Any]:
        values: dict[str, Any] = {
            "key": _text(message.key),
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": message.timestamp_ms,
            "headers": json.dumps([[name, _text(value)] for name, value in message.headers or ()], ensure_ascii=False),
        }
        return {f"_{name}": values[name] for name in self.metadata}


def _no_record(value: bytes) -> bytes:
    """A line with the value as a JSON text, where an object should be: so it is rejected."""
    return json.dumps(value.decode("utf-8", "backslashreplace"), ensure_ascii=False).encode()


def _text(value: bytes | None) -> str | None:
    """Bytes as text if they are UTF-8, else in Base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
