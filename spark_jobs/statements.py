"""The text of SQL statements: where one ends, and a statement as one line."""

from __future__ import annotations

import re

_PIECE = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/|;|[^;'"`/-]+|.""", re.DOTALL)
"""A quoted text, a comment, a semicolon, or anything between these."""


def statements(text: str) -> list[str]:
    """The statements of a text, split at semicolons outside quotes and comments."""
    parts, current = [], ""
    for piece in _PIECE.findall(f"{text}\n;"):  # a comment may be the last line
        if piece != ";":
            current += piece
            continue
        if re.sub(r"--[^\n]*|/\*.*?\*/", "", current, flags=re.DOTALL).strip():
            parts.append(current.strip())
        current = ""
    return parts


def ends_statement(text: str) -> bool:
    """True if a semicolon outside quotes and comments ends the text, and no quote or comment is open."""
    pieces = [piece for piece in _PIECE.findall(text) if piece.strip() and not _is_comment(piece)]
    is_open = any(piece in _QUOTES for piece in pieces) or "/*" in "".join(p for p in pieces if not _is_quoted(p))
    return not is_open and bool(pieces) and pieces[-1] == ";"


def one_line(text: str) -> str:
    """The statement on one line: without comments, and with one space where it had blanks outside quotes."""
    line, between = "", ""
    for piece in [*_PIECE.findall(text), ""]:
        if piece and not _is_quoted(piece):
            between += " " if _is_comment(piece) else piece
        else:
            line, between = line + re.sub(r"\s+", " ", between) + piece, ""
    return line.strip()


_QUOTES = ("'", '"', "`")


def _is_quoted(piece: str) -> bool:
    return piece.startswith(_QUOTES)


def _is_comment(piece: str) -> bool:
    return piece.startswith(("--", "/*"))
