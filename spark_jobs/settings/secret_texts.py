"""Secrets within texts that people read: passwords in URLs, and parameters with the name of a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "…"
"""The text that replaces a secret."""
_SECRET = r"(?:password|secret|token|credential(?!s?\.provider)|(?:access|private|account)[._]?key)"
_WITHIN = re.compile(rf"(//)[^/@\s]*:[^/@\s]*(?=@)|({_SECRET}[^=&;\s]*=)[^&;\s]*", re.IGNORECASE)
"""The secrets within a text: a user with a password in a URL, and anywhere a parameter with the name of a secret."""
_NAMES_SECRET = re.compile(_SECRET, re.IGNORECASE)


def hide_secrets(value: Any) -> Any:
    """A value of JSON in which HIDDEN replaces the secrets of texts, and the values of keys with a secret's name."""
    if isinstance(value, str):
        return _WITHIN.sub(lambda secret: f"{secret[1] or secret[2]}{HIDDEN}", value)
    if isinstance(value, Mapping):
        return {key: HIDDEN if _NAMES_SECRET.search(key) else hide_secrets(inner) for key, inner in value.items()}
    return value
