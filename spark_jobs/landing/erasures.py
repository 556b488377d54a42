"""The erasures of a source, and the progress of each of them."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow.compute as pc

from spark_jobs.engine.records import Erasures, erased_hash
from spark_jobs.errors import TidemarkError
from spark_jobs.landing.choices import Choice
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.people_tables import ERASURES, FINISHED, last_steps
from spark_jobs.storage.lakes.lake import Lake

BEGUN, COUNTED = "begun", "counted"
"""The steps of an erasure before FINISHED; see the column `step`."""
_SALT_BYTES = 16


class ErasureUnfinished(TidemarkError):
    """An erasure of the source was begun and is not finished. Facts: `source`, `erasure`."""

    code = "erasure_unfinished"


class ErasedColumnGone(TidemarkError):
    """The source file no longer declares a column by which rows were erased. Facts: `source`, `column`."""

    code = "erased_column_gone"


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure with the step that it has reached; its fields are columns of `bronze.erasures`.

    `erased_column` is None if an entity was erased. Tables of earlier versions lack the column: they have entities.
    """

    erasure: str
    erased_column: str | None
    entity_hash: str
    salt: str
    step: str
    number: int
    rows: int | None
    because: str
    erased_by: str

    @property
    def erases(self) -> Erasures:
        """The value of this erasure alone, by its hash."""
        return _with_hashes(self.salt, [self])


def erasures(lake: Lake, source: Source) -> list[Erasure]:
    """All erasures of the source, oldest first."""
    last = last_steps(lake.records(ERASURES, pc.field("source") == source.name), "erasure")
    return [Erasure(**{"erased_column": None, **{n: row[n] for n in Erasure.__slots__ if n in row}}) for row in last]


def erased_values(lake: Lake, source: Source) -> Erasures | None:
    """The erased values as landing needs them, by salted hashes; None if there are none.

    Raises:
        ErasedColumnGone: the source file no longer declares one of the columns.
    """
    listed = erasures(lake, source)
    if not listed:
        return None
    erased = _with_hashes(listed[0].salt, listed)
    for column in erased.columns:
        if column not in source.columns:
            raise ErasedColumnGone(
                expected=f"the column {column} in {source.name}.yml: rows were erased by it",
                found="no such column",
                consequence="no file was read: erased rows could land again",
                next_step=f"declare {column} again; with `optional: true` files may lack it",
                source=source.name,
                column=column,
            )
    return erased


def _with_hashes(salt: str, listed: Sequence[Erasure]) -> Erasures:
    entities = frozenset(one.entity_hash for one in listed if one.erased_column is None)
    others = frozenset((one.erased_column, one.entity_hash) for one in listed if one.erased_column is not None)
    return Erasures(salt, entities, others)


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
                consequence="nothing was run: tables still have some of the erased rows",
                next_step=f"`tidemark erase {source.name} {_option(one)} --because …` with the same value goes on with"
                " it",
                source=source.name,
                erasure=one.erasure,
            )


def _option(erasure: Erasure) -> str:
    return "--entity …" if erasure.erased_column is None else f'--where "{erasure.erased_column} = …"'


def new_erasure(lake: Lake, source: Source, choice: Choice, because: str, erased_by: str) -> Erasure:
    """The erasure of this choice that was begun already, or a new one, which is not recorded yet (step "")."""
    listed = erasures(lake, source)
    salt = listed[0].salt if listed else secrets.token_hex(_SALT_BYTES)
    hashed = erased_hash(choice.value, salt, choice.recorded_column)
    unfinished = [one for one in listed if one.entity_hash == hashed and one.step != FINISHED]
    name = f"erasure-{uuid.uuid4().hex[:12]}"
    new = Erasure(name, choice.recorded_column, hashed, salt, "", 0, None, because, erased_by)
    return unfinished[0] if unfinished else new


def is_repeated(lake: Lake, source: Source, erasure: Erasure) -> bool:
    """True if an earlier erasure of the same value has finished."""
    return any(one.entity_hash == erasure.entity_hash and one.step == FINISHED for one in erasures(lake, source))


def record_step(lake: Lake, source: Source, erasure: Erasure, step: str, rows: int | None = None) -> Erasure:
    """Record that the erasure has reached `step`; returns it with that step."""
    after = replace(erasure, step=step, number=erasure.number + 1, rows=erasure.rows if rows is None else rows)
    row = {name: getattr(after, name) for name in Erasure.__slots__}
    lake.record(ERASURES, [{**row, "source": source.name, "recorded_at": datetime.now(UTC)}])
    return after
