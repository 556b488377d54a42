"""Publications one after the other under readers who join published names, with failures in between.

Each answer of a reader is compared with what the same names say as of each publication, asked at the end: an answer
that fits no publication is torn. Names of `silver` and `gold` in one query must fit one and the same publication; a
mart follows it within its run, so each mart must fit one by itself.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from spark_jobs.server.logins import login
from spark_jobs.server.thrift_client import thrift_connection
from tests.chaos import faults
from tests.chaos.site import Site
from tests.installations import until

DELAYS = "origin, {0}_start, {0}_end, departures, mean_delay, max_delay"
ROTATIONS = "tailnum, {0}_start, {0}_end, flights, air_minutes"
FLIGHTS = "tailnum, flights, air_minutes, miles, delay_minutes"
LAST = "SELECT g.*, d.last_departed FROM {flights} g LEFT JOIN (SELECT tailnum, max(window_end) AS last_departed FROM"
LAST += " {rotations} GROUP BY tailnum) d USING (tailnum)"
TOGETHER = ("delays", "rotations", "flights", "joined")
"""Parts of an answer that one publication gives."""
MARTS = {"marts.airport_delays": "delays", "marts.aircraft_rotations": "rotations", "marts.aircraft_state": "state"}
"""Each mart, and the part of an answer that it repeats."""

Answer = Mapping[str, tuple[int, str]]
"""Of each part the number of rows and the sum of their hashes."""


def _bag(part: str, columns: str, relation: str) -> str:
    total = f"sum(CAST(xxhash64({columns}) AS DECIMAL(38, 0)))"
    return f"SELECT '{part}' AS part, count(*) AS n, CAST(coalesce({total}, 0) AS STRING) AS bag FROM {relation}"


def question(at: str = "") -> str:
    """One query over all names: as they are now, or as of a time, then without the marts."""
    now = not at
    names = {
        name: name if now else f"{name}_as_of(TIMESTAMP'{at}')"
        for name in ("silver.departure_delays", "silver.rotations", "gold.flights")
    }
    delays, rotations, flights = names.values()
    last = LAST.format(flights=flights, rotations=rotations)
    parts = [
        _bag("delays", DELAYS.format("window"), delays),
        _bag("rotations", ROTATIONS.format("window"), rotations),
        _bag("flights", FLIGHTS, flights),
        _bag(
            "joined",
            "r.tailnum, r.window_start, r.flights, g.flights",
            f"{rotations} r JOIN {flights} g USING (tailnum)",
        ),
    ]
    if now:
        parts += [
            _bag("marts.airport_delays", DELAYS.format("window"), "marts.airport_delays"),
            _bag("marts.aircraft_rotations", ROTATIONS.format("session"), "marts.aircraft_rotations"),
            _bag("marts.aircraft_state", f"{FLIGHTS}, last_departed", "marts.aircraft_state"),
        ]
    else:
        parts.append(_bag("state", f"{FLIGHTS}, last_departed", f"({last})"))
    return " UNION ALL ".join(parts)


@dataclass
class Reads:
    """The answers and errors that `readers` readers got."""

    readers: int
    answers: Counter[tuple[tuple[str, int, str], ...]] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def wait_for_new_answer(self) -> None:
        """Wait until an answer has come that was asked after this call: each reader has one in flight at most."""
        enough = self.answers.total() + self.readers + 1
        until(lambda: self.answers.total() >= enough or self.errors, 300, "the readers get no answers")


@contextmanager
def readers(site: Site, count: int) -> Iterator[Reads]:
    """So many readers with connections of their own, asking in a loop until the block ends."""
    reads, over, lock = Reads(count), threading.Event(), threading.Lock()
    text = question()

    def read() -> None:
        connection = thrift_connection(site.settings, login(site.settings, "reader"), timeout_s=600)
        try:
            while not over.is_set():
                cursor = connection.cursor()
                cursor.execute(text)
                rows = tuple(sorted((part, int(n), bag) for part, n, bag in cursor.fetchall()))
                cursor.close()
                with lock:
                    reads.answers[rows] += 1
        except Exception as error:  # told by the test, which expects none
            with lock:
                reads.errors.append(repr(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=read) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield reads
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _is_past(site: Site, token: int) -> bool:
    return site.token("flights") > token


def publish(
    site: Site,
    landing: Path,
    days: list[str],
    files: Mapping[str, str],
    failing: Random | None = None,
    after_each: Callable[[], None] = lambda: None,
) -> list[str]:
    """Publish each day, some after a failure that `failing` chooses, and call `after_each`; returns the failures."""
    failures = []
    for day in days:
        path = landing / "flights" / day / "flights.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ("run", "flights", "--from", day, "--to", day)
        failure = failing.choice(["", "kill", "interrupt", "gate", "stray row"]) if failing else ""
        if failure == "gate":
            # an airport that no check knows
            path.write_text(files[day].replace(",JFK,", ",XXX,"))
            output = site.do(*command)
            assert output.code == 1, output.text
        path.write_text(files[day])
        if failing and failure in ("kill", "interrupt"):
            before = site.token("flights")
            begun = site.start(*command)
            site.wait_for(partial(_is_past, site, before + 4), begun)
            faults.pause(failing, 5.0)
            (faults.kill_command if failure == "kill" else faults.interrupt)(site, failing, begun)
            site.end(begun)
        if failure == "stray row":
            stray = "INSERT INTO marts_staging.airport_delays SELECT * FROM marts_staging.airport_delays LIMIT 1"
            site.ask(stray, role="writer")
        output = site.do(*command)
        assert output.ok, output.text
        failures += [failure] if failure else []
        after_each()
    return failures


def torn(site: Site, reads: Reads) -> list[str]:
    """Answers that fit no publication, in words."""
    times = site.ask(
        "SELECT date_format(published - INTERVAL '0.000001' SECOND, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
        " FROM trace.publications WHERE source = 'flights'"
    )
    states = [{part: (int(n), bag) for part, n, bag in site.ask(question(time))} for (time,) in times]
    wrong = []
    for answer, count in reads.answers.items():
        found = {part: (n, bag) for part, n, bag in answer}
        if not any(all(found[part] == state[part] for part in TOGETHER) for state in states):
            wrong.append(f"{count} times silver and gold of no one publication: {found}")
        for mart, part in MARTS.items():
            if not any(found[mart] == state[part] for state in states):
                wrong.append(f"{count} times {mart} as of no publication: {found[mart]}")
    return wrong
