"""The publication in force of a source, and the step that replaces it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import PUBLISHED
from spark_jobs.storage.times import instant

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BEFORE_ALL_US = 0
"""`published` before the first publication: no change has a time below it."""


CARRIED = "publication"
"""Its name in `Lake.carried`."""


@dataclass(frozen=True, slots=True)
class Publication:
    """One row of `trace.published`: times in microseconds, tokens whose rows are visible, the token that published."""

    published_us: int
    reached_us: int
    complete_us: int
    settled: int = 0
    tokens: tuple[int, ...] = ()
    definition: str = ""
    run_id: str = ""
    token: int = 0

    def to_json(self) -> str:
        """One line of JSON; `from_json` gives an equal value."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Publication:
        """Read what `to_json` gave."""
        fields = json.loads(text)
        return cls(**{**fields, "tokens": tuple(fields["tokens"])})


def visible(publication: Publication) -> Column:
    """Whether the token of a row is published."""
    return F.expr(visible_sql(publication))


def visible_sql(publication: Publication, *more: int, of: str = "") -> str:
    """SQL: whether the token of a row of the relation `of` is published, or one of `more`."""
    token = f"{of}.token" if of else "token"
    listed = ", ".join(str(int(t)) for t in [*publication.tokens, *more]) or "NULL"
    return f"({token} <= {publication.settled} OR {token} IN ({listed}))"


def load(lake: Lake, source: Source) -> Publication:
    """The publication in force, or the empty one before the first."""
    if lake.carried is None or CARRIED not in lake.carried:
        row = stored(lake, source).first()
        found = start(source) if row is None else Publication.from_json(row.state)
        if lake.carried is None:
            return found
        lake.carried[CARRIED] = found.to_json()
    return Publication.from_json(lake.carried[CARRIED])


def start(source: Source) -> Publication:
    """What is in force before the first publication."""
    return Publication(BEFORE_ALL_US, source.drops.start_us, source.drops.start_us)


def stored(lake: Lake, source: Source) -> DataFrame:
    """The row of the publication in force, if there is one: `state`, as `Publication.from_json` reads it."""
    times = [F.unix_micros(c).alias(f"{c}_us") for c in ("published", "reached", "complete")]
    # a filter on a partition column alone makes Delta compute the snapshot's state first: one job more
    of_source = lake.read(PUBLISHED).where(F.col("source") == source.name).where(F.col("token") >= 0)
    row = F.struct(*times, "settled", "tokens", "definition", "run_id", "token")
    return of_source.select(F.to_json(row).alias("state"))


def commit(lake: Lake, source: Source, fence: Fence, publication: Publication) -> None:
    """Put `publication` in force: the one commit that makes everything its tokens wrote visible, in all tables at
    once."""
    row = {
        "source": source.name,
        "token": fence.token,
        "run_id": publication.run_id,
        "published": instant(publication.published_us),
        "reached": instant(publication.reached_us),
        "complete": instant(publication.complete_us),
        "settled": publication.settled,
        "tokens": list(publication.tokens),
        "definition": publication.definition,
    }
    lake.replace_source(PUBLISHED, lake.frame(PUBLISHED, [row]), fence)
    if lake.carried is not None:
        lake.carried[CARRIED] = replace(publication, token=fence.token).to_json()
