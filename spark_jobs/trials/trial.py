"""The trial of some files: a source is guessed from them, or given, and all stages run over them in a scratch
installation."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_jobs.config import Settings
from spark_jobs.definitions.definition import Definition, definitions
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.drops import filled_drops
from spark_jobs.jobs.request import Request
from spark_jobs.landing.dated_names import date_in
from spark_jobs.landing.files import list_drop_files
from spark_jobs.landing.guess import Guess, guess_source
from spark_jobs.landing.guessed_reading import read_all
from spark_jobs.landing.opened import is_remote
from spark_jobs.sources import OfSql, Source
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.trials.scratch import Ran, ScratchInstallation


@dataclass(frozen=True)
class TrialRestatement:
    """The windows of a definition that a run published anew: `before` has those that it replaced, as they were; `after`
    has them as they are, and the windows that are new."""

    definition: Definition
    before: pa.Table
    after: pa.Table


@dataclass(frozen=True)
class TriedDrop:
    """A drop that was run: its files, its run, the rows that were late, the windows that it restated, and all states as
    they were published then (None for a source without state)."""

    files: tuple[str, ...]
    ran: Ran
    late: pa.Table
    restated: tuple[TrialRestatement, ...]
    states: pa.Table | None = None


@dataclass(frozen=True)
class Trial:
    """The result of a trial. `guess`: None for a source that has a source file. `drops` are in the order in which they
    came. `skipped`: the checks that were not judged, since Spark alone reads their conditions in SQL."""

    installation: ScratchInstallation
    guess: Guess | None = None
    drops: list[TriedDrop] = field(default_factory=list)
    skipped: tuple[str, ...] = ()

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
    return _run(Trial(installation, guess), _by_drop(guess.source, files, guess.last_days_us), on_drop)


def try_source(
    settings: Settings,
    source: Source,
    text: str,
    folder: Path,
    *,
    files: Sequence[Path] = (),
    on_skip: Callable[[tuple[str, ...]], None] = lambda _: None,
    on_drop: Callable[[TriedDrop], None] = lambda _: None,
) -> Trial:
    """Run all stages of a source over each drop of its landing folder, or over some files, the earliest first.

    Args:
        settings: its landing folder is read, and nothing else; files are copied.
        source: the source.
        text: its source file.
        folder: an empty folder, for the source file, the landing folder and the tables.
        files: files as they came, in place of those in the landing folder.
        on_skip: called with the names of the checks that are not judged, if there are any.
        on_drop: called with each drop once it is published.

    Raises:
        ParameterError: there is no file, or the source reads none of a folder of this machine.
        TidemarkError: a stage was refused.
    """
    skipped = tuple(name for name, check in source.checks.items() if isinstance(check, OfSql))
    if skipped:
        on_skip(skipped)
        checks = {name: check for name, check in source.checks.items() if name not in skipped}
        source = source.model_copy(update={"checks": checks})
    installation = ScratchInstallation.make(folder, source, text)
    by_drop = (
        _by_drop(source, files, read_all(source, files).last_days_us) if files else _files_by_drop(settings, source)
    )
    if not by_drop:
        raise ParameterError(
            expected=f"files of {source.name} in {settings.landing}, as {source.path}",
            found="none",
            consequence="nothing was run",
            next_step="put files there, name files, or name the landing folder: TIDEMARK_LANDING",
        )
    return _run(Trial(installation, skipped=skipped), by_drop, on_drop)


def _files_by_drop(settings: Settings, source: Source) -> dict[int, list[Path]]:
    """The files of each drop in the landing folder."""
    if source.extract is not None or is_remote(settings.landing):
        raise ParameterError(
            expected="a source of files in a landing folder of this machine",
            found=f"`kind: {source.landing.kind}`" if source.extract is not None else str(settings.landing),
            consequence="nothing was run",
            next_step="name files of this machine after --source",
        )
    now_us = micros(datetime.now(UTC))
    ended = int(source.drops.numbers_at(np.array([now_us]))[0]) if now_us > source.start_us else 0
    drops = filled_drops(settings, source, ended)
    return {n: [Path(file.location) for file in list_drop_files(settings.landing, source, n)] for n in drops}


def _by_drop(source: Source, files: Sequence[Path], last_days_us: Sequence[int | None]) -> dict[int, list[Path]]:
    by_drop: dict[int, list[Path]] = {}
    for file, last_day_us in zip(files, last_days_us, strict=True):
        by_drop.setdefault(_drop_of(source, file, last_day_us), []).append(file)
    return by_drop


def _run(trial: Trial, by_drop: Mapping[int, Sequence[Path]], on_drop: Callable[[TriedDrop], None]) -> Trial:
    """Copy the files of each drop into the scratch folder and run it, the earliest first."""
    installation = trial.installation
    for seq_no in sorted(by_drop):
        for file in by_drop[seq_no]:
            shutil.copyfile(file, installation.place(seq_no, file.name))
        # the drops between two with files stay unrun
        ran = installation.run_drops(range(seq_no, seq_no + 1), Request(pass_gap=True))
        restated = tuple(_restatement_of(installation, each, ran) for each in definitions(installation.source))
        names = tuple(file.name for file in by_drop[seq_no])
        tried = TriedDrop(names, ran, installation.late_rows(ran), restated, trial.states)
        trial.drops.append(tried)
        on_drop(tried)
    return trial


def _drop_of(source: Source, file: Path, last_day_us: int | None) -> int:
    """The drop of a file: that of the date in its path, else that of the last day of its rows."""
    named = date_in(str(file))
    day_us = last_day_us if named is None else micros(datetime(named.year, named.month, named.day, tzinfo=UTC))
    return 0 if day_us is None else max(int(source.drops.numbers_at(np.array([day_us]))[0]), 0)


def _restatement_of(installation: ScratchInstallation, definition: Definition, ran: Ran) -> TrialRestatement:
    after, before = installation.new_windows(definition, ran)
    return TrialRestatement(definition, before, after)
