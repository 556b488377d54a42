"""The base of a plan: its files, definitions and frontiers. A run of the plan checks that they are unchanged."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source

ListedFile = tuple[int, str]
"""The drop's number and the checksum of a file."""


class StalePlan(TidemarkError):
    """Something that the plan was made on has changed since. Facts: `source`, `intervals`, `changes`."""

    code = "stale_plan"


class PlanUnreadable(TidemarkError):
    """The file is no plan. Facts: `path`."""

    code = "plan_unreadable"


@dataclass(frozen=True, slots=True)
class Base:
    """Everything that decides the outcome of a run of `[lo_us, hi_us)`: definition, files, frontiers, publication.

    Compaction, folding and since change no answer, and so change no base. `files`: by path. `landed`: half-open ranges
    of drops. `horizon_us`: the horizon for the rows that the run lands. `only_file`, `retract` and `replay` (sorted)
    are as in `request.Request`.
    """

    source: str
    lo_us: int
    hi_us: int
    only_file: str | None
    retract: bool
    replay: tuple[str, ...] | None
    definition: str
    files: dict[str, ListedFile]
    seal_us: int
    reached_us: int
    horizon_us: int
    landed: tuple[tuple[int, int], ...]
    landed_through: int
    published_us: int
    published_reached_us: int
    published_definition: str

    @property
    def plan_id(self) -> str:
        """A short hash of the base, by which people recognize a plan; equal for equal bases."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def to_json(self) -> str:
        """One line of JSON; `from_json` makes an equal base of it."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, path: str) -> Base:
        """The base that `to_json` wrote as `text`; `path` is the file that it is from, for the error.

        Raises:
            PlanUnreadable: the text is no plan of this version of Tidemark.
        """
        try:
            given: dict[str, Any] = json.loads(text)
            given["files"] = {file: (seq_no, checksum) for file, (seq_no, checksum) in given["files"].items()}
            given["landed"] = tuple((first, past) for first, past in given["landed"])
            given["replay"] = None if given["replay"] is None else tuple(given["replay"])
            return cls(**{field.name: given[field.name] for field in fields(cls)})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PlanUnreadable(
                expected="a plan that `tidemark plan --save` wrote",
                found=f"{path}: {type(error).__name__}: {error}",
                consequence="nothing was run",
                next_step="plan again",
                path=path,
            ) from None

    def check(self, now: Base, source: Source) -> None:
        """Refuse the plan if its base differs from the base of now.

        Raises:
            StalePlan: names the changes, and the drops in which they are.
        """
        if self == now:
            return
        drops = sorted(self._changed_drops(now))
        labels = [source.drops.label(n) for n in drops]
        raise StalePlan(
            expected=f"{self.source} as it was when the plan {self.plan_id} was made",
            found=", ".join(self._changes(now, labels)),
            consequence="nothing was run",
            next_step="plan again, and look at the differences",
            source=self.source,
            intervals=labels,
            changes=[field.name for field in fields(self) if getattr(self, field.name) != getattr(now, field.name)],
        )

    def _changed_drops(self, now: Base) -> set[int]:
        paths = {p for p in {*self.files, *now.files} if self.files.get(p) != now.files.get(p)}
        drops = {side.files[p][0] for side in (self, now) for p in paths if p in side.files}
        before, after = ({n for first, past in side.landed for n in range(first, past)} for side in (self, now))
        return drops | (before ^ after)

    def _about(self) -> tuple[object, ...]:
        return self.lo_us, self.hi_us, self.only_file, self.retract, self.replay

    def _changes(self, now: Base, labels: list[str]) -> list[str]:
        changes = []
        if self.files != now.files:
            changes.append("other files")
        if self.definition != now.definition:
            changes.append("another source file")
        if (self.landed, self.landed_through) != (now.landed, now.landed_through):
            changes.append("drops landed since")
        if self._about() != now._about():
            changes.append("another interval")
        changes = changes or ["a run since, which moved the frontiers"]
        return [f"{', '.join(changes)} in {', '.join(labels)}"] if labels else changes
