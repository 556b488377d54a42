"""A child process of tests: a day of wide rows, and by how much each stage's peak of memory exceeds the memory of the
process before; printed as JSON.

    python -m tests.jobs.wide_day FOLDER files|spark

`files` is a lake without Spark; `spark` one whose work is done in tasks of a Spark session. Then `workers` has by how
much the peak of a Python worker exceeds the memory of an idle one, the largest in each stage.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import psutil
import pytest

from spark_jobs import distribution
from spark_jobs.config import Settings
from spark_jobs.restatement import chains
from spark_jobs.session import open_session
from tests.jobs.harness import DAY, START, Session, path_of, run_one, write_source
from tests.support.file_session import FileSession

ROWS, TEXT = 700_000, 1000
MEMORY = 64 << 20
"""The memory that rows of a stage may take in this process."""
STAGES = {"files": ("seal", "window", "compact"), "spark": ("land", "seal", "window", "compact")}
"""The stages that are measured, by the kind of lake. One without Spark reads the files of a landing as a whole."""
SOURCE = """
source: meters
start: 2024-01-01
every: 1 day
landing: {path: "meters/{date}/*", format: ndjson}
columns: {id: string, meter: string, at: timestamp, load: int, text: string}
timelines: [at]
event_time: at
entity: meter
windows:
  visits:
    kind: session
    gap: 30 min
    key: meter
    time: at
    aggregates: {n: count(), last_text: last(text)}
    late: reemit
state: {mode: add, datatype: int64, components: {readings: 1, load: load}}
"""


def _line(n: int, day: int, letters: str) -> str:
    at = f"2024-01-0{day + 1}T{n % 24:02}:{n % 60:02}:00Z"
    text = letters[n % (99 * TEXT) :][:TEXT]
    return json.dumps({"id": str(n), "meter": f"m{n % 5000}", "at": at, "load": n % 9, "text": text})


def _write_day(landing: Path, day: int, rows: int, letters: str) -> None:
    """Write the file of a day line by line, so that its rows are never in the memory of this process."""
    path = landing / path_of(day)
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        file.writelines(f"{_line(n, day, letters)}\n" for n in range(rows))


def _resident(line: str, process: int | str = "self") -> int:
    fields = dict(part.split(":") for part in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(fields[line].split()[0]) << 10


def _forget_peak(process: int | str = "self") -> None:
    Path(f"/proc/{process}/clear_refs").write_text("5")


def _workers() -> list[int]:
    """The Python processes that work for the Spark session of this one."""
    children = psutil.Process().children(recursive=True)
    return [child.pid for child in children if "python" in child.name()]


def _opened(kind: str, folder: Path, home: Settings) -> Session:
    return open_session(home, "wide day") if kind == "spark" else FileSession(folder / "lake")


def main(folder: Path, kind: str) -> None:
    of_spark = {"spark": "classic", "master": "local[2]", "heap": "2g", "process_memory": f"{MEMORY >> 20}m"}
    home = write_source(Settings(home=folder / "home", landing=folder / "landing").model_copy(update=of_spark), SOURCE)
    session = _opened(kind, folder, home)
    patch = pytest.MonkeyPatch()
    patch.setattr(distribution, "LOCAL_MEMORY", MEMORY)
    patch.setattr(distribution, "BYTES_A_TASK", 16 << 20)
    patch.setattr(chains, "BYTES_A_TASK", 16 << 20)
    patch.setattr("spark_jobs.jobs.publish.build_data_docs", lambda _settings: 0)
    chance = random.Random(1)
    letters = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=TEXT * 100))
    stages: dict[str, int] = {}
    workers: dict[str, int] = {}
    for day, rows in enumerate((100, ROWS)):
        _write_day(home.landing_folder, day, rows, letters)
        for stage in ("land", *STAGES["files"], "publish"):
            before = _resident("VmRSS")
            _forget_peak()
            for worker in _workers():
                _forget_peak(worker)
            lo = START + day * DAY
            run_one(session, stage, source="meters", lo=lo, hi=lo + DAY, run_id=f"day-{day}", settings=home)
            stages[stage] = _resident("VmHWM") - before
            idle = min((_resident("VmRSS", process) for process in _workers()), default=0)
            workers[stage] = max((_resident("VmHWM", process) - idle for process in _workers()), default=0)
    of_process, of_workers = ({stage: of[stage] for stage in STAGES[kind]} for of in (stages, workers))
    print(json.dumps({"bytes_of_rows": ROWS * TEXT, "process": of_process, "workers": of_workers}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
