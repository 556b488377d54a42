"""Programs that tests use and no package registry of Python has; `make programs` builds them into `.programs`."""

from __future__ import annotations

import shutil

from tests.installations import CHECKOUT

PROGRAMS = CHECKOUT / ".programs"


def find_program(name: str) -> str | None:
    """The path of a program: the one that `make programs` has built, else the machine's own, else None."""
    built = PROGRAMS / name
    return str(built) if built.exists() else shutil.which(name)


def reason_without(name: str) -> str:
    """The reason for skipping a test that needs a program."""
    return f"{name} is not on this machine; `make programs` builds it, with Go"
