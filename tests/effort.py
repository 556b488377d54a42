"""The share of random cases that a property test tries, and of tests that run in turns; and the seed that chooses them.

`make test-long` tries all of them. `make test` tries three tenths of the cases and runs a twentieth of the tests in
turns, `make test-fast` tries a twentieth. The seed follows from the commit: each commit tries other cases. The head of
pytest's output has these numbers, so a failure can be tried again.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Collection
from pathlib import Path

SHARE = float(os.environ.get("TIDEMARK_TEST_SHARE", "1"))
"""The share of random cases, from 0 to 1."""
TURNS = float(os.environ.get("TIDEMARK_TEST_TURNS", SHARE))
"""The share of the tests that run in turns, from 0 to 1."""


def short_commit() -> str:
    """The first digits of the checked-out commit; empty outside of a repository."""
    head = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return head.stdout.strip() if head.returncode == 0 else ""


def _seed() -> int:
    """The environment's TIDEMARK_TEST_SEED; else the first digits of the checked-out commit; else any number."""
    if "TIDEMARK_TEST_SEED" in os.environ:
        return int(os.environ["TIDEMARK_TEST_SEED"])
    commit = short_commit()
    return int(commit, 16) if commit else random.SystemRandom().randrange(2**32)


SEED = _seed()


def tries(number: int) -> int:
    """This many cases, or the run's share of them, at least one."""
    return max(round(number * SHARE), 1)


def share_of(cases: Collection[str], share: float = SHARE) -> list[str]:
    """A share of named cases, at least one, chosen by the seed: each commit tries others."""
    return random.Random(SEED).sample(sorted(cases), max(round(len(cases) * share), 1))
