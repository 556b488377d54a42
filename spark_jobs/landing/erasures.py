"""The erasures of a source's entities, and the progress of each of them."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow.compute as pc

from spark_jobs.errors import TidemarkError
from spark_jobs.kernels.records.erased import Erasures, erased_hash
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.people_tables import ERASURES, FINISHED, last_steps

BEGUN, COUNTED = "begun", "counted"
"""The steps of an erasure before FINISHED; see the column `step`."""
_SALT_BYTES = 16


class ErasureUnfinished(TidemarkError):
    """An erasure of the source was begun and is not finished. Facts: `source`, `erasure`."""

    code = "erasure_unfinished"


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure with the step that it has reached; its fields are columns of `bronze.erasures`."""

    erasure: str
    entity_hash: str
    salt: str
    step: str
    number: int
    rows: int | None
    because: str
    erased_by: str


def erasures(lake: Lake, source: Source) -> list[Erasure]:
    """All erasures of the source, oldest first."""
    last = last_steps(lake.records(ERASURES, pc.field("source") == source.name), "erasure")
    return [Erasure(**{name: row[name] for name in Erasure.__slots__}) for row in last]


def erased_entities(lake: Lake, source: Source) -> Erasures | None:
    """The erased entities as landing needs them, by salted hashes; None if there are none."""
    listed = erasures(lake, source)
    return Erasures(listed[0].salt, frozenset(one.entity_hash for one in listed)) if listed else None


def check_finished(lake: Lake, source: Source) -> None:
    """Refuse to go on while an erasure is under way.

    Raises:
        ErasureUnfinished: one was begun, and interrupted.
    """
    for one in erasures(lake, source):
        if one.step != FINISHED:
            raise ErasureUnfinished(
                expected=f"every erasure of {source.name} to be finished",
                found=f"{one.erasure}, which {one.erased_by} began ({one.because}), interrupted",
                consequence="nothing was run: tables have part of what was erased",
                next_step=f"`tidemark erase {source.name} --entity … --because …` with the same entity goes on with it",
                source=source.name,
                erasure=one.erasure,
            )


def new_erasure(lake: Lake, source: Source, entity: str, because: str, erased_by: str) -> Erasure:
    """The erasure of this entity that was begun already, or a new one, which is not recorded yet (step "")."""
    listed = erasures(lake, source)
    salt = listed[0].salt if listed else secrets.token_hex(_SALT_BYTES)
    hashed = erased_hash(entity, salt)
    unfinished = [one for one in listed if one.entity_hash == hashed and one.step != FINISHED]
    name = f"erasure-{uuid.uuid4().hex[:12]}"
    return unfinished[0] if unfinished else Erasure(name, hashed, salt, "", 0, None, because, erased_by)


def record_step(lake: Lake, source: Source, erasure: Erasure, step: str, rows: int | None = None) -> Erasure:
    """Record that the erasure has reached `step`; returns it with that step."""
    after = replace(erasure, step=step, number=erasure.number + 1, rows=erasure.rows if rows is None else rows)
    row = {name: getattr(after, name) for name in Erasure.__slots__}
    lake.record(ERASURES, [{**row, "source": source.name, "recorded_at": datetime.now(UTC)}])
    return after
