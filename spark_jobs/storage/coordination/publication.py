"""The publication in force of a source, and the step that replaces it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.fingerprints import Fingerprints, from_json, to_json
from spark_jobs.storage.descriptions.tables import PUBLISHED
from spark_jobs.storage.descriptions.times import instant, micros
from spark_jobs.storage.lakes.lake import RunLake, TableReader

if TYPE_CHECKING:
    from pyspark.sql import Column

BEFORE_ALL_US = 0
"""`published` before the first publication: no change has a time below it."""


MEND_DOUBLED = "`tidemark doctor --repair` keeps the newest of them"


class PublicationDoubled(TidemarkError):
    """Several rows claim to be the publication in force of a source. Facts: `source`, `tokens`."""

    code = "publication_doubled"


@dataclass(frozen=True, slots=True)
class Publication:
    """One row of `trace.published`: times in microseconds, tokens whose rows are visible, the token that published, and
    the fingerprints of the tables as they were then."""

    published_us: int
    reached_us: int
    complete_us: int
    settled: int = 0
    tokens: tuple[int, ...] = ()
    definition: str = ""
    run_id: str = ""
    token: int = 0
    tables: Fingerprints = field(default_factory=dict)


def visible(publication: Publication) -> Column:
    """Spark condition: the token of a row is published."""
    return F.expr(visible_sql(publication))


def visible_sql(publication: Publication, *, of: str = "") -> str:
    """SQL condition: the token of a row of the relation `of` is published."""
    token = f"{of}.token" if of else "token"
    listed = ", ".join(str(int(t)) for t in publication.tokens) or "NULL"
    return f"({token} <= {publication.settled} OR {token} IN ({listed}))"


def visible_rows(publication: Publication, *more: int) -> pc.Expression:
    """pyarrow condition: the token of a row is published, or one of `more`."""
    tokens = pa.array([*publication.tokens, *more], pa.int64())
    return (pc.field("token") <= publication.settled) | pc.field("token").isin(tokens)


def load(lake: TableReader, source: Source) -> Publication:
    """The publication in force, or the empty one before the first.

    Raises:
        PublicationDoubled: several rows claim to be it.
    """
    rows = lake.records(PUBLISHED, pc.field("source") == source.name)
    if not rows:
        return start(source)
    if len(rows) > 1:
        tokens = sorted(row["token"] for row in rows)
        raise PublicationDoubled(
            expected=f"one row of {source.name} in {PUBLISHED.qualified}",
            found=f"{len(rows)}, of the tokens {', '.join(map(str, tokens))}",
            consequence="nothing was done; names that users read show each published row as often",
            next_step=MEND_DOUBLED,
            source=source.name,
            tokens=tokens,
        )
    row = rows[0]
    published_us, reached_us, complete_us = (micros(row[time]) for time in ("published", "reached", "complete"))
    others = {name: row[name] for name in ("settled", "definition", "run_id", "token")}
    tables = from_json(row.get("tables"))
    return Publication(published_us, reached_us, complete_us, tokens=tuple(row["tokens"]), tables=tables, **others)


def keep_newest(lake: RunLake, source: Source, fence: Fence) -> bool:
    """Of several rows that claim to be the publication in force, keep the one of the greatest token; returns true if
    there were several.

    Raises:
        PublicationDoubled: rows of the greatest token differ.
    """
    rows = lake.records(PUBLISHED, pc.field("source") == source.name)
    newest = [row for row in rows if row["token"] == max(row["token"] for row in rows)]
    if any(row != newest[0] for row in newest):
        raise PublicationDoubled(
            expected=f"rows of {source.name} in {PUBLISHED.qualified} that one run wrote",
            found=f"different ones under the token {newest[0]['token']}",
            consequence="nothing was mended",
            next_step="restore the lake from a backup",
            source=source.name,
            tokens=[row["token"] for row in newest],
        )
    if len(rows) > 1:
        lake.replace_record(PUBLISHED, newest[0], fence)
    return len(rows) > 1


def start(source: Source) -> Publication:
    """The publication in force before the first one: it publishes nothing."""
    return Publication(BEFORE_ALL_US, source.drops.start_us, source.drops.start_us)


def commit(lake: RunLake, source: Source, fence: Fence, publication: Publication) -> None:
    """Put `publication` in force: the one commit that makes everything its tokens wrote visible, in all tables at
    once."""
    lake.replace_record(PUBLISHED, row_of(source, fence, publication), fence)


def row_of(source: Source, fence: Fence, publication: Publication) -> dict[str, Any]:
    """The row of `trace.published` that `load` reads as `publication`."""
    return {
        "source": source.name,
        "token": fence.token,
        "run_id": publication.run_id,
        "published": instant(publication.published_us),
        "reached": instant(publication.reached_us),
        "complete": instant(publication.complete_us),
        "settled": publication.settled,
        "tokens": list(publication.tokens),
        "definition": publication.definition,
        "tables": to_json(publication.tables),
    }
