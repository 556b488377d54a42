"""A format of landed files: one record a line, each field at its place."""

from collections.abc import Iterator
from typing import Any

from spark_jobs.plugins import landing_format

FIELDS = {"id": slice(0, 8), "meter": slice(8, 12), "at": slice(12, 32), "seen": slice(32, 52), "load": slice(52, 60)}


@landing_format("fixed_width")
def read(blocks: Iterator[bytes]) -> Iterator[dict[str, Any] | str]:
    """The records of a file; a line of another length is given back as it is, and goes to quarantine."""
    rest = b""
    for block in [*blocks, b"\n"]:
        *lines, rest = (rest + block).split(b"\n")
        for line in filter(None, lines):
            text = line.decode()
            yield {name: text[place].strip() for name, place in FIELDS.items()} if len(text) == 60 else text
