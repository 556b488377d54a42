"""How large a state is as workers are handed it, where the source file says how long it is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from spark_jobs.restatement.states import row_bytes
from spark_jobs.sources import parse_source


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, None),
        ({"mode": "add", "components": {"n": 1, "load": "load"}}, 2 * 21 + len("nload")),
        ({"mode": "add", "components": {f"c{i:03}": "load" for i in range(500)}}, 500 * (21 + 4)),
        (
            {"mode": "operations", "length": 1000, "operations": {"op": "kind", "indices": "at_i", "values": "say"}},
            1000 * 21,
        ),
        ({"mode": "operations", "operations": {"op": "kind", "indices": "at_i", "values": "say"}}, None),
    ],
)
def test_a_state_takes_what_its_components_take(state: dict[str, Any] | None, expected: int | None) -> None:
    document: dict[str, Any] = {
        "source": "meters",
        "start": "2024-03-09",
        "landing": {"path": "meters/{date}/*", "format": "ndjson"},
        "columns": {
            "id": "string",
            "site": "string",
            "load": "int",
            "at": "timestamp",
            "kind": "string",
            "at_i": "string",
            "say": "string",
        },
        "timelines": ["at"],
        "event_time": "at",
        "entity": "site",
        "delta_id": ["id"],
    }
    if state is not None:
        document["state"] = state
    source = parse_source(yaml.safe_dump(document), file="meters.yml")
    assert row_bytes(source) == expected
