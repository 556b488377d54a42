"""The drops of a run, from its parameters or its interval; their names and their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.sources import find_source
from spark_jobs.sources.dag_runs import MANUAL, DagRun
from spark_jobs.sources.drops import Schedule
from spark_jobs.sources.quantities import instant_at
from spark_jobs.storage.descriptions.times import micros


def run_interval(run: Any, params: Mapping[str, Any], drops: Schedule) -> tuple[datetime, datetime]:
    """`[lo, hi)` of a DAG run, as `DagRun.interval` says.

    Raises:
        ParameterError: a parameter names no drop.
    """
    lo, hi, date = run.data_interval_start, run.data_interval_end, run.logical_date
    taken = DagRun(
        first=params.get("from"),
        last=params.get("to"),
        after_us=micros(run.run_after),
        data_us=None if lo is None else (micros(lo), micros(hi)),
        date_us=micros(date) if run.run_type == MANUAL and date is not None else None,
    )
    lo_us, hi_us = taken.interval(drops)
    return instant_at(lo_us), instant_at(hi_us)


def earlier_run(context: Any, lo: datetime, drops: Schedule) -> str | None:
    """The run next before this one, by logical date, that is on its way too, if its drops are earlier."""
    run = context["ti"].get_previous_dagrun(state="running")
    if run is None:
        return None
    try:
        begins = run_interval(run, run.conf or {}, drops)[0]
    except ParameterError:
        return None  # it names no drop, and is refused
    return str(run.run_id) if begins < lo else None


def named_drops(drops: Schedule, lo: datetime, hi: datetime) -> str:
    """The drops of a run as people name them: one day, or the first and the last."""
    first, last = (drops.label(drops.number_at(micros(t))) for t in (lo, hi - timedelta(microseconds=1)))
    return first if first == last else f"{first} to {last}"


def instants(drops: Schedule, numbers: range) -> tuple[datetime, datetime]:
    """`[lo, hi)` of drops by their numbers."""
    return instant_at(drops.start(numbers.start)), instant_at(drops.start(numbers.stop))


def planned_files(source: str, lo: datetime, hi: datetime) -> Iterator[str]:
    """One line per drop of `[lo, hi)`: its files and their sizes."""
    from spark_jobs.landing.files import list_drop_files

    settings = load_settings()
    checked = find_source(settings.sources, source)
    if checked.extract is not None:
        yield f"drops that were not read yet are read by the run, through the connection {checked.extract.connection}"
    for seq_no in checked.drops.drops_spanned(micros(lo), micros(hi)):
        files = list_drop_files(settings.landing, checked, seq_no)
        size = sum(file.size for file in files)
        listed = ", ".join(file.path for file in files)
        yield f"drop {checked.drops.label(seq_no)}: {len(files)} files, {size} bytes: {listed}"
