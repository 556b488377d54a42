"""A reader in a loop: `python -m tests.chaos.reader FILE`, with an installation's environment and a statement on its
standard input. Each answer goes to the file as a line of JSON, each failure as its text and when it was."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from spark_jobs.config import load_settings
from spark_jobs.server.thrift_client import thrift_query


def main() -> None:
    statement, settings = sys.stdin.read(), load_settings()
    pause_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    with Path(sys.argv[1]).open("a", buffering=1) as file:
        while True:
            begun = time.time()
            try:
                rows = [list(row) for row in thrift_query(settings, statement, timeout_s=120)]
                file.write(f"{json.dumps({'rows': rows, 'seconds': time.time() - begun})}\n")
            except Exception as error:  # a server that is killed fails in any way
                line = {"error": str(error)[:500], "begun": begun, "ended": time.time()}
                file.write(f"{json.dumps(line)}\n")
                time.sleep(1)
            time.sleep(pause_s)


if __name__ == "__main__":
    main()
