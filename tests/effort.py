"""How many random cases a property test tries: all of them in `make test`, a part of them in `make test-fast`."""

from __future__ import annotations

import os

_SHARE = float(os.environ.get("TIDEMARK_TEST_SHARE", "1"))


def tries(number: int) -> int:
    """This many cases, or the share of them that the environment's TIDEMARK_TEST_SHARE asks for, at least one."""
    return max(round(number * _SHARE), 1)
