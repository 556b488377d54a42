"""Reads of states by SQL, which the lake server notes: they are counted as those of commands are.

The server appends a line to a file of the home for each name of a state that a statement reads: the name, a tab, and
the texts of its columns that the statement asks for, as in a URL (`StateReads` of `jvm/scala`). So people's and
programs' statements, the portal's and dbt's count alike.
"""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns import are
from spark_jobs.engine.deltas import entity_class
from spark_jobs.engine.restatement import LIVE
from spark_jobs.model import NOTED_READS
from spark_jobs.restatement.published import published_files
from spark_jobs.sources import Source, read_sources
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.read_counts import count_read
from spark_jobs.storage.descriptions.tables import STATE
from spark_jobs.storage.lakes.lake import Lake

_OF_CHAINS = frozenset({"chains", "checkpoints"})
"""Names in `gold` that show the chains of all sources."""


@dataclass(frozen=True, slots=True)
class NotedRead:
    """A read of the states of a source: of these entities, or of all of them (None)."""

    source: str
    entities: tuple[str, ...] | None


def reads_in(line: str, sources: Mapping[str, Source]) -> Iterator[NotedRead]:
    """The reads that a line of the file notes; none if its name shows no state of these sources."""
    name, _, conditions = line.partition("\t")
    wanted: dict[str, list[str]] = {}
    for column, value in parse_qsl(conditions, keep_blank_values=True):
        wanted.setdefault(column, []).append(value)
    if name in _OF_CHAINS:
        of = [s for s in sources.values() if s.keeps_chains and s.name in wanted.get("source", [s.name])]
        column = "entity"
    else:
        source = sources.get(name) or sources.get(name.removesuffix("_as_of"))
        of, column = ([], "") if source is None or source.state is None else ([source], source.entity)
    for source in of:
        yield NotedRead(source.name, tuple(wanted[column]) if column in wanted else None)


def count_noted_reads(lake: Lake, home: Path, sources_folder: Path) -> None:
    """Count the reads that the server has noted, and empty its file. An entity that has no state counts as one of no
    deltas. The source files are read if there are notes."""
    lines = _take_lines(home / NOTED_READS)
    sources = read_sources(sources_folder).sources if lines else {}
    noted = Counter(read for line in lines for read in reads_in(line, sources))
    entities: dict[str, set[str]] = {}
    for read in noted:
        entities.setdefault(read.source, set()).update(read.entities or ())
    classes = {name: _classes(lake, sources[name], wanted) for name, wanted in entities.items()}
    for read, times in noted.items():
        for _ in range(times):
            if read.entities is None:
                count_read(home, read.source)
            for entity in read.entities or ():
                count_read(home, read.source, of_class=classes[read.source].get(entity, 0))


def _take_lines(path: Path) -> list[str]:
    with suppress(OSError), path.open("r+") as file:
        # the lock of the server's process is POSIX's, not the one of `flock`
        fcntl.lockf(file, fcntl.LOCK_EX)
        lines = file.read().splitlines()
        file.truncate(0)
        return lines
    return []


def _classes(lake: Lake, source: Source, entities: set[str]) -> dict[str, int]:
    """The classes of entities by the numbers of their deltas."""
    if not entities:
        return {}
    of_entities = pc.field("entity").isin(pa.array(sorted(entities), pa.string()))
    current, of_source = publication.load(lake, source), {"source": [source.name]}
    stored = published_files(lake, STATE, current, ["entity", "delta_count", "era"], of_entities, of_source).whole()
    live = stored.filter(pa.array(are(stored["era"], LIVE)))
    counts: dict[str, int] = {}
    for entity, count in zip(live["entity"].to_pylist(), live["delta_count"].to_pylist(), strict=True):
        # of a state and the one that it replaced, the newer one has more deltas, but for retractions
        counts[entity] = max(count, counts.get(entity, 0))
    return {entity: int(entity_class(count)) for entity, count in counts.items()}
