"""The lines that the lake server logged while something ran."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from spark_jobs.config import Settings

MOST_LINES = 50
_READ_BYTES = 1 << 20
"""The bytes to read of the end of the log. A stack trace of the JVM has about 10 KB."""
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z ")


def lines_since(settings: Settings, since: datetime, most: int = MOST_LINES) -> list[str]:
    """The last lines that this machine's lake server has logged since a time, at most `most`; empty without a log.

    Lines without a time belong to the line before them."""
    path = settings.logs_dir / "lake.log"
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(size - _READ_BYTES, 0))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    earliest = f"{since.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{since.microsecond // 1000:03}"
    first = next((n for n, line in enumerate(lines) if (at := _STAMP.match(line)) and at[1] >= earliest), len(lines))
    return lines[first:][-most:]
