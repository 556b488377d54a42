"""The inputs that a run waits for before it takes its place in line: files of its drops, and publications of other
sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from spark_jobs.config import load_settings
from spark_jobs.errors import ConfigurationError, TidemarkError
from spark_jobs.sources import Source, find_source
from spark_jobs.sources.quantities import instant_at

POLL_S = 5.0
SHOWN_DROPS = 5


class RunInputs:
    """The inputs of a run of the drops `[lo_us, hi_us)` of a source, in microseconds. `scheduled`: nobody started the
    run, so it also waits for the sources that `dag.after` in its source file names."""

    def __init__(self, source: str, lo_us: int, hi_us: int, *, scheduled: bool) -> None:
        self._settings = load_settings()
        self._name = source
        self._lo_us, self._hi_us = lo_us, hi_us
        self._scheduled = scheduled

    @cached_property
    def _source(self) -> Source:
        return find_source(self._settings.sources, self._name)

    def missing_input(self, now: datetime) -> str | None:
        """The first input that the run still waits for at the time `now`, in words; None if it waits for none."""
        return self._source_to_wait_for() or self._drops_without_files(now)

    def _drops_without_files(self, now: datetime) -> str | None:
        """The drops without a file, in words. None if there are none, or if the time to wait for them is over."""
        wait_us = self._source.wait_us
        if wait_us is None or now >= (until := instant_at(self._hi_us + wait_us)):
            return None
        from spark_jobs.landing.files import has_drop_files

        drops = self._source.drops
        numbers = drops.drops_spanned(self._lo_us, self._hi_us)
        empty = [n for n in numbers if not has_drop_files(self._settings.landing, self._source, n)]
        if not empty:
            return None
        more = ", …" if len(empty) > SHOWN_DROPS else ""
        listed = ", ".join(drops.label(n) for n in empty[:SHOWN_DROPS])
        return f"files of {listed}{more}, until {until:%Y-%m-%d %H:%M:%S} UTC"

    def _source_to_wait_for(self) -> str | None:
        """The first source that has not published all of its drops that overlap the run's, in words; None if all
        have."""
        if not self._scheduled or not self._source.dag.after:
            return None
        from spark_jobs.storage.coordination import publication
        from spark_jobs.storage.lakes.stored_lake import StoredLake
        from spark_jobs.trace import frontiers

        lake = StoredLake.at(self._settings.lake)
        if lake is None:
            raise ConfigurationError(
                expected="`dag.after` on a lake whose records are read without Spark: on a disk, or s3a://",
                found=self._settings.lake,
                consequence=f"{self._name} can't wait for {', '.join(self._source.dag.after)}; nothing was run",
                next_step="take `after` out of the source file",
            )
        for name in self._source.dag.after:
            other = find_source(self._settings.sources, name)
            current_publication = publication.load(lake, other)
            published = frontiers.published_frontiers(lake, other, current_publication)
            wanted = range(max(other.drops.number_at(self._lo_us), 0), other.drops.number_at(self._hi_us - 1) + 1)
            if not published.has_landed(wanted):
                missing = next(n for n in wanted if not published.has_landed(range(n, n + 1)))
                return f"{name}, which has not published {other.drops.label(missing)}"
        return None


class InputsTrigger(BaseTrigger):
    """Fires once no input is missing; until then the task's log names the input that the run waits for."""

    def __init__(self, *, source: str, lo_us: int, hi_us: int, scheduled: bool) -> None:
        super().__init__()
        self._arguments: dict[str, Any] = {"source": source, "lo_us": lo_us, "hi_us": hi_us, "scheduled": scheduled}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class path and the arguments with which the triggerer makes the trigger again."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self._arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check the inputs until none is missing. Fires also if a check raises an error: the task then reports it."""
        inputs, logged = RunInputs(**self._arguments), None
        while True:
            try:
                missing = await sync_to_async(inputs.missing_input)(datetime.now(UTC))
            except TidemarkError as error:
                self.log.warning("%s", error)
                missing = None
            if missing is None:
                break
            if missing != logged:
                self.log.info("waits for %s", missing)
                logged = missing
            await asyncio.sleep(POLL_S)
        yield TriggerEvent(None)
