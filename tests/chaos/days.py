"""The days that campaigns run: their source files, their commands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from spark_jobs.config import CHECKOUT
from tests.chaos.outputs import Output
from tests.chaos.published import Bag, bag_of_history
from tests.chaos.site import Site

CHECKS = "\nchecks:\n  airports: {kind: in, column: origin, values: [EWR, JFK, LGA]}\n"
CHAINS = "\ncompaction: {strategy: tiered, keep_recent: 2, delta_threshold: 4}\n"


def write_sources(folder: Path) -> Path:
    """The folder of the two source files, with a check and with chains."""
    sources = folder / "sources"
    sources.mkdir()
    for name, more in (("flights", CHECKS), ("weather", CHAINS)):
        text = (CHECKOUT / "dags" / "sources" / f"{name}.yml").read_text()
        (sources / f"{name}.yml").write_text(text + more)
    return sources


def day_of(number: int) -> str:
    """The label of a drop."""
    return f"2013-01-{number:02}"


def run_of(source: str, number: int) -> tuple[str, ...]:
    """The command that runs a day."""
    return ("run", source, "--from", day_of(number), "--to", day_of(number))


def bring_back(source: str, number: int) -> tuple[str, ...]:
    """The command that lands a day again which was retracted."""
    suffix = "csv" if source == "flights" else "ndjson"
    return (*run_of(source, number), "--file", f"{source}/{day_of(number)}/{source}.{suffix}")


def histories(site: Site, source: str, entities: Iterable[str]) -> dict[str, Bag]:
    """The chains of entities, each as `tidemark history` gives it."""
    return {
        f"history of {entity}": bag_of_history(must(site.do("history", source, entity, "--json")).text)
        for entity in entities
    }


def must(output: Output) -> Output:
    """What has to succeed for anything to be tried."""
    if not output.ok:
        raise AssertionError(f"tidemark {' '.join(output.command)} ended with {output.code}:\n{output.text}")
    return output
