"""What a lake says to readers, asked through SQL over JDBC as a reader asks: a bag of each published name. And the
histories of entities, which a command reads out of the chains.

A bag is the number of rows and the sum of their hashes, so two lakes say the same where their bags are equal. `exact`
counts every column but those that say who wrote a row, and when; `values` leaves out what depends on the order of runs,
too. `CUT` are names that are not compared once a drop was retracted: see there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

WRITERS = {"run_id", "token", "landed_by", "landing", "chunk_id", "first_seen", "last_seen"}
"""Columns that say who wrote a row, and when: a landing that follows a fault has another number."""
OF_ORDER = {"known_from", "known_to", "revision", "era"}
"""Columns that depend on how days were cut into runs, and on what was taken back in between."""

NAMES: Mapping[str, Mapping[str, str]] = {
    "flights": {
        "bronze.flights_deltas": "",
        "bronze.quarantine": "source = 'flights'",
        "silver.departure_delays": "",
        "silver.rotations": "",
        "silver.late": "source = 'flights'",
        "gold.flights": "",
        "gold.state": "source = 'flights'",
        "marts.airport_delays": "",
        "marts.aircraft_rotations": "",
        "marts.aircraft_state": "",
    },
    "weather": {
        "bronze.weather_deltas": "",
        "bronze.quarantine": "source = 'weather'",
        "gold.weather": "",
        "gold.state": "source = 'weather'",
        "gold.checkpoints": "source = 'weather'",
        "gold.chains": "source = 'weather'",
        "marts.weather_now": "",
    },
}
"""What people read of each source, with the condition that picks its rows."""
CUT = ("gold.checkpoints", "gold.chains")
"""Names that say where chains are cut. A retraction, and the landing that takes it back, add deltas to a chain, whose
past stays known. They move the cuts; they change no answer."""
CHAINED: Mapping[str, tuple[str, ...]] = {"weather": ("EWR", "JFK", "LGA")}
"""The entities of sources that keep chains."""
JOINED = {
    "flights": ("silver.departure_delays", "silver.rotations", "gold.flights"),
    "weather": ("gold.weather", "gold.checkpoints", "gold.chains"),
}
"""Names of one source that one publication shows together."""

Ask = Callable[[str], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Bag:
    """Rows of one name, and the sums of their hashes."""

    rows: int
    exact: str
    values: str


Published = Mapping[str, Bag]
Days = Mapping[str, list[Mapping[str, Bag]]]
"""Of each source, what is published before its first day and after each."""
KEPT = Path(__file__).with_name("undisturbed.json")


def columns_of(ask: Ask, names: Iterable[str]) -> dict[str, list[str]]:
    """The columns of each name."""
    return {name: [row[0] for row in ask(f"DESCRIBE {name}")] for name in names}


def statement(columns: Mapping[str, list[str]], conditions: Mapping[str, str]) -> str:
    """One statement that gives the bags of all names that `conditions` lists."""
    parts = []
    for name, condition in conditions.items():
        exact = sorted({*columns[name]} - WRITERS)
        values = [column for column in exact if column not in OF_ORDER]
        where = f" WHERE {condition}" if condition else ""
        parts.append(f"SELECT '{name}', count(*), {_hashes(exact)}, {_hashes(values)} FROM {name}{where}")
    return " UNION ALL ".join(parts)


def _hashes(columns: list[str]) -> str:
    listed = ", ".join(f"`{column}`" for column in columns)
    # as JSON, so that a map or a null in a list hashes too
    row = f"to_json(struct({listed}), map('ignoreNullFields', 'false'))"
    return f"CAST(coalesce(sum(CAST(xxhash64({row}) AS DECIMAL(38, 0))), 0) AS STRING)"


def bag_of_history(text: str) -> Bag:
    """The deltas of an entity and the state after each, as `tidemark history --json` prints them."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Bag(len(json.loads(text)), digest, digest)


def bags(rows: Iterable[tuple[Any, ...]]) -> dict[str, Bag]:
    """The answer to `statement`."""
    return {name: Bag(int(count), exact, values) for name, count, exact, values in rows}


def kept() -> Days:
    """What undisturbed days publish, as it is kept beside this file."""
    content = json.loads(KEPT.read_text())
    return {
        source: [{name: Bag(*bag) for name, bag in day.items()} for day in days] for source, days in content.items()
    }


def keep(days: Days) -> None:
    """Keep it; a change that is meant to change answers does so, and says why."""
    content = {source: [{n: astuple(b) for n, b in day.items()} for day in of] for source, of in days.items()}
    KEPT.write_text(f"{json.dumps(content, indent=1)}\n")


def comparable(wanted: Published, *, exact: bool) -> Published:
    """What a lake must say, too; `exact`: nothing was retracted from it."""
    return {name: bag for name, bag in wanted.items() if exact or name not in CUT}


def differences(published: Published, wanted: Published, *, exact: bool) -> dict[str, str]:
    """Each name of which a lake says something else, and what."""
    wrong = {}
    for name, bag in comparable(wanted, exact=exact).items():
        other = published[name]
        if bag.rows != other.rows:
            wrong[name] = f"{other.rows} rows, not {bag.rows}"
        elif bag.values != other.values:
            wrong[name] = "other values"
        elif exact and bag.exact != other.exact:
            wrong[name] = "other times or revisions"
    return wrong


def rows_off(published: Published, wanted: Published, *, exact: bool) -> int:
    """Rows lost or doubled, over all names."""
    return sum(abs(published[name].rows - bag.rows) for name, bag in comparable(wanted, exact=exact).items())
