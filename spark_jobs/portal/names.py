"""The names of pages: paths, made of any text, that are the same for files and behind a server."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_BETWEEN = "~~"
MOST_CHARACTERS = 240
"""The most characters of one part of a path that all file systems take."""


def encode_part(text: str) -> str:
    """The text as a part of a path.

    Letters, digits, `_`, `-`, and `.` except in front stay as they are. Each byte of any other character becomes `~`
    and two hex digits.
    """
    return "".join(c if _stays(c, first=i == 0) else _escape(c) for i, c in enumerate(text))


def _stays(character: str, *, first: bool) -> bool:
    # a name that begins with a dot is hidden, or another folder
    return bool(_PLAIN.fullmatch(character)) or (character == "." and not first)


def _escape(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))


def decode_part(name: str) -> str:
    """The text from which `encoded` made `name`; a `~` that `encoded` would not write stays as it is."""
    raw = re.sub(rb"~([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), name.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "surrogateescape")


def encode_key(values: Sequence[str]) -> str:
    """The values of a key as one part of a path."""
    return _BETWEEN.join(map(encode_part, values))


def decode_key(name: str) -> list[str]:
    """The values from which `encoded_key` made `name`."""
    return [decode_part(part) for part in name.split(_BETWEEN)]
