"""What the replay runner asks of a kind's player."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Json = Any
"""A JSON value as `json` reads it; integers are Python integers, exact at any size."""


class UnknownOp(Exception):
    """The kind has no op of this name."""


class Player(Protocol):
    """The in-memory implementation of one kind, driven by op names and JSON arguments; holds no rule of its own."""

    def reset(self) -> None:
        """Start a case: everything new and empty."""
        ...

    def play(self, op: str, args: Mapping[str, Json]) -> Json:
        """Do one step and return its result as JSON, None for no value.

        Raises TidemarkError to refuse and UnknownOp; anything else that is raised is a mismatch.
        """
        ...

    def state(self) -> object:
        """The complete state as a value that later steps don't change, comparable with `==`; asked at every step."""
        ...
