"""Messages as lines: each is one line, and what is no record stays to be seen."""

from __future__ import annotations

import json

import pytest

from spark_jobs.extraction.messages import LineMaker, Message
from spark_jobs.sources.extracts import place_in_topic

JSON = LineMaker()
CSV = LineMaker(header=("id", "load"), delimiter=";")
TOLD = LineMaker(metadata=("key", "partition", "offset", "timestamp", "headers"))


@pytest.mark.parametrize(
    ("maker", "value", "line"),
    [
        (JSON, b'{"a": 1}', b'{"a": 1}'),
        (JSON, b'{\r\n  "a": "x\\n"\r\n}\n', b'{    "a": "x\\n"  }'),
        (JSON, b"no \xff json\nat all", b"no \xff json at all"),
        (JSON, b"", b'""'),
        (JSON, b" \n", b'" \\n"'),
        (JSON, None, b"null"),
        (LineMaker(skips_tombstones=True), None, None),
        (CSV, b'"a;""\n";1', b'{"id": "a;\\"\\n", "load": "1"}'),
        (CSV, b"a;1;2", b'"a;1;2"'),
        (CSV, b"a;1\nb;2", b'"a;1\\nb;2"'),
        (CSV, b'"a', b'"\\"a"'),
        (CSV, b"\xff;1", b'"\\\\xff;1"'),
        (TOLD, b"[1]", b"[1]"),
    ],
)
def test_a_message_is_one_line(maker: LineMaker, value: bytes | None, line: bytes | None) -> None:
    assert maker.line(Message(3, 7, value)) == line


def test_what_kafka_says_of_a_message_goes_before_its_values() -> None:
    headers = [("ä", b"1"), ("ä", None), ("x", b"\xff")]
    line = TOLD.line(Message(3, 7, b' {"a": 1}', b"k\xc3\xa9", 5, headers))
    assert line is not None
    told = json.loads(line)
    assert told == {
        "_key": "ké",
        "_partition": 3,
        "_offset": 7,
        "_timestamp": 5,
        "_headers": '[["ä", "1"], ["ä", null], ["x", "/w=="]]',
        "a": 1,
    }
    assert json.loads(TOLD.line(Message(0, 1, b"{ }")) or b"")["_offset"] == 1


def test_a_file_says_where_its_lines_are_in_the_topic() -> None:
    place = {"topic": "a-1.b", "partition": 3, "offset": 1201}
    assert place_in_topic("s/2024-01-01/topic-a-1.b-3-1200.ndjson.gz", 2) == place
    assert place_in_topic("s/2024-01-01/rows-00000.ndjson.gz", 2) == dict.fromkeys(place)
