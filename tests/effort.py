"""The share of random cases that a property test tries, and of tests that run in turns; and the seed that chooses them.

`make test-long` tries all of them, `make test` three tenths, `make test-fast` a twentieth. The seed follows from the
commit: each commit tries other cases. The head of pytest's output has both numbers, so a failure can be tried again.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Collection
from pathlib import Path

SHARE = float(os.environ.get("TIDEMARK_TEST_SHARE", "1"))


def _seed() -> int:
    """The environment's TIDEMARK_TEST_SEED; else the first digits of the checked-out commit; else any number."""
    if "TIDEMARK_TEST_SEED" in os.environ:
        return int(os.environ["TIDEMARK_TEST_SEED"])
    head = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(head.stdout, 16) if head.returncode == 0 else random.SystemRandom().randrange(2**32)


SEED = _seed()


def tries(number: int) -> int:
    """This many cases, or the run's share of them, at least one."""
    return max(round(number * SHARE), 1)


def share_of(cases: Collection[str]) -> list[str]:
    """The run's share of named cases, chosen by the seed: each commit tries others, `make test-long` all of them."""
    return random.Random(SEED).sample(sorted(cases), tries(len(cases)))
