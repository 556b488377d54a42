"""Commands that end themselves, or whose clock jumps, at a commit: a process that forks for each.

`python -m tests.chaos.crash_points` imports what a command needs, then reads a JSON document a line: `{"arguments",
"environment", "output", "report", "point": {"commit": N, "does": …}}`. For each it forks; the fork is the command, with
its output in a file. At its N-th commit to the lake it does what the point says:

- `kill_before`, `kill_after`: the process kills itself before or after the commit;
- `clock`: its clock jumps by `seconds`;
- `file_size`: from then on no file that it writes may be larger than `bytes`, as on a file system that fails.

It answers with the exit code, a line each. The report is the commit that it was, if the command came so far.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMITS = ("append", "append_files", "append_dense", "replace_files", "record", "replace_record")
COPYING_S = 2.0
"""How long the last of a command's output may take."""
IMPORTED = ("spark_jobs.cli.app", "spark_jobs.jobs.pipeline", "great_expectations", "dbt.cli.main", "time_machine")


def serve() -> None:
    """Fork for each line until the input ends."""
    from spark_jobs.jobs import rehearse

    for name in IMPORTED:
        importlib.import_module(name)
    rehearse.load_kernels("chaos")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        command = json.loads(line)
        # a pipe: under a limit on the size of files a command could not write its own error into one
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            os._exit(be(command, write))
        os.close(write)
        copying = threading.Thread(target=_copy, args=(read, Path(command["output"])), daemon=True)
        copying.start()
        _, status = os.waitpid(pid, 0)
        # what the command has left running may keep the pipe open
        copying.join(COPYING_S)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _copy(read: int, to: Path) -> None:
    with os.fdopen(read, "rb", buffering=0) as source, to.open("wb", buffering=0) as target:
        while piece := source.read(1 << 16):
            target.write(piece)


def be(command: dict[str, Any], output: int) -> int:
    """Be the command, in a fork, whose output goes to a descriptor."""
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.clear()
    os.environ.update(command["environment"])
    strike_at_commit(command["point"], Path(command["report"]))
    from spark_jobs.cli.app import run

    try:
        return run(command["arguments"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def strike_at_commit(point: dict[str, Any], report: Path) -> None:
    """Let commits through, and do at the N-th what the point says."""
    from spark_jobs.storage.lakes.spark_lake import SparkLake

    count = 0

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def commit(self: SparkLake, table: Any, *arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            hit = count == point["commit"]
            if hit:
                report.write_text(table.qualified)
            if hit and point["does"] != "kill_after":
                _strike(point)
            done = original(self, table, *arguments, **options)
            if hit and point["does"] == "kill_after":
                _strike(point)
            return done

        return commit

    for name in COMMITS:
        setattr(SparkLake, name, wrapped(getattr(SparkLake, name)))


def _strike(point: dict[str, Any]) -> None:
    if point["does"] == "clock":
        import time_machine

        time_machine.travel(time.time() + point["seconds"], tick=True).start()
    elif point["does"] == "file_size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (point["bytes"], resource.RLIM_INFINITY))
    else:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    serve()
