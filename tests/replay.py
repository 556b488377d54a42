"""Replay case files against the in-memory implementations: no Spark, no clock, no network.

    python tests/replay.py KIND [--skip=TAG …] [--consolidate] FILE…        KIND = arrangement | corrections | chunks

One line for each mismatch, then one line of counts; exit code 0 without mismatches, 1 with some, 2 for wrong usage or
a file that is not of the form.
"""

import sys
from pathlib import Path

# run by path from anywhere: the package and the players lie in the directory above this file's
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.replaying.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
