"""The trial of some files: a source is guessed from them, and all stages run over them in a scratch installation."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_jobs.definitions.definition import Definition, definitions
from spark_jobs.jobs.request import Request
from spark_jobs.jobs.scratch import Ran, ScratchInstallation
from spark_jobs.landing.guess import Guess, guess_source
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.times import micros

_DATE = re.compile(r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?!\d)")
"""A date in a path: 2024-03-01 or 20240301."""


@dataclass(frozen=True)
class Restated:
    """The windows of a definition that a run published anew: `before` has those that it replaced, as they were; `after`
    has them as they are, and the windows that are new."""

    definition: Definition
    before: pa.Table
    after: pa.Table


@dataclass(frozen=True)
class TriedDrop:
    """A drop that was run: its files, its run, the rows that were late, and the windows that it restated."""

    files: tuple[str, ...]
    ran: Ran
    late: pa.Table
    restated: tuple[Restated, ...]


@dataclass(frozen=True)
class Trial:
    """The result of a trial. `drops` are in the order in which they came."""

    installation: ScratchInstallation
    guess: Guess
    drops: list[TriedDrop] = field(default_factory=list)

    @property
    def windows(self) -> Mapping[str, pa.Table]:
        """The published windows of each definition, by its name."""
        return {d.name: self.installation.windows(d) for d in definitions(self.installation.source)}

    @property
    def states(self) -> pa.Table | None:
        """The published states; None for a source without state."""
        return None if self.installation.source.state is None else self.installation.states()


def try_files(
    files: Sequence[Path],
    folder: Path,
    *,
    name: str | None = None,
    entity: str | None = None,
    time: str | None = None,
    on_guess: Callable[[Guess], None] = lambda _: None,
    on_drop: Callable[[TriedDrop], None] = lambda _: None,
) -> Trial:
    """Guess a source from the files, and run all stages over each of their drops, the earliest first.

    Args:
        files: the files as they came.
        folder: an empty folder, for the source file, the landing folder and the tables.
        name: the name of the source, guessed if it is left out; so are the columns `entity` and `time`.
        on_guess: called with the guess, before the files land.
        on_drop: called with each drop once it is published.

    Raises:
        ParameterError: a file can't be read, or no source can be guessed.
        TidemarkError: a stage was refused.
    """
    guess = guess_source(files, name=name, entity=entity, time=time)
    on_guess(guess)
    installation = ScratchInstallation.make(folder, guess.source, guess.text)
    source = installation.source
    trial = Trial(installation, guess)
    by_drop: dict[int, list[Path]] = {}
    for file, last_day_us in zip(files, guess.last_days_us, strict=True):
        by_drop.setdefault(_drop_of(source, file, last_day_us), []).append(file)
    for seq_no in sorted(by_drop):
        for file in by_drop[seq_no]:
            shutil.copyfile(file, installation.place(seq_no, file.name))
        # the drops between two with files stay unrun
        ran = installation.run_drops(range(seq_no, seq_no + 1), Request(pass_gap=True))
        restated = tuple(_restated(installation, definition, ran) for definition in definitions(source))
        tried = TriedDrop(tuple(file.name for file in by_drop[seq_no]), ran, installation.late_rows(ran), restated)
        trial.drops.append(tried)
        on_drop(tried)
    return trial


def _drop_of(source: Source, file: Path, last_day_us: int | None) -> int:
    """The drop of a file: that of the date in its path, else that of the last day of its rows."""
    for year, month, day in reversed(_DATE.findall(str(file))):
        with suppress(ValueError):
            date = datetime(int(year), int(month), int(day), tzinfo=UTC)
            return max(int(source.drops.numbers_at(np.array([micros(date)]))[0]), 0)
    return 0 if last_day_us is None else max(int(source.drops.numbers_at(np.array([last_day_us]))[0]), 0)


def _restated(installation: ScratchInstallation, definition: Definition, ran: Ran) -> Restated:
    after, before = installation.new_windows(definition, ran)
    return Restated(definition, before, after)
