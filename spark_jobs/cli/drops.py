"""The drops of a source, each with its state: whether it has landed, and whether its newest run failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import drop_time, server_session
from spark_jobs.cli.output import note, table
from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from spark_jobs.jobs.drops import DropStatus
    from spark_jobs.sources import Source
    from spark_jobs.storage.lakes.lake import TableReader


def drops_asked_for(
    settings: Settings,
    source: Source,
    first: str | None = None,
    last: str | None = None,
    *,
    only_missing: bool = False,
    failed: bool = False,
) -> list[DropStatus]:
    """The drops of a range, or of the whole source, that are to be run.

    `only_missing` leaves out drops that have landed. `failed` keeps only drops whose newest run in Airflow failed.

    Raises:
        AirflowRefused: `failed` is set, and Airflow does not list the failed runs.
        ParameterError: only one of `first` and `last` is given, or they are no range of drops.
    """
    if (first is None) != (last is None):
        raise ParameterError(
            expected="both --from and --to, or neither", found="one of them", next_step="add the other one"
        )
    asked = None
    if first is not None and last is not None:
        asked = source.drops.seq_nos(drop_time(source, first), drop_time(source, last))
    wrong: set[int] = set()
    if failed:
        wrong = failed_in_airflow(settings, source)
    elif asked is None:
        wrong = _failed_if_known(settings, source)
    drops = _drops(settings, source, asked, wrong)
    if failed:
        drops = [drop for drop in drops if drop.seq_no in wrong]
    return [drop for drop in drops if drop.state != "landed"] if only_missing else drops


def _drops(settings: Settings, source: Source, asked: range | None, failed: set[int]) -> list[DropStatus]:
    """The drops of a range, or all drops up to the last one that has landed, has files or is in `failed`."""
    from spark_jobs.jobs.drops import drops_of
    from spark_jobs.storage.descriptions.times import micros

    ended = source.drops.number_at(micros(datetime.now(UTC)))
    with lake_of(settings) as lake:
        return drops_of(settings, source, lake, asked, failed=failed, ended=ended)


def failed_in_airflow(settings: Settings, source: Source) -> set[int]:
    """The numbers of the drops whose newest run in Airflow failed."""
    from spark_jobs.server.airflow_api import AirflowApi
    from spark_jobs.server.backfill import failed_drops

    with AirflowApi(settings) as api:
        return failed_drops(api, source)


@contextmanager
def lake_of(settings: Settings) -> Iterator[TableReader]:
    """The lake for reads: from its files if this process can read them, else through the lake server."""
    from spark_jobs.storage.lakes.stored_lake import StoredLake

    stored = StoredLake.at(settings.lake)
    if stored is not None:
        yield stored
        return
    # not before: it imports pyspark
    from spark_jobs.storage.lakes.spark_lake import SparkLake

    with server_session(settings, "tidemark-drops") as spark:
        yield SparkLake(spark)


def document(settings: Settings, source: Source) -> list[dict[str, Any]]:
    """Every drop of a source, with its state, files, bytes and rows.

    The state is `failed` if the newest run of the drop in Airflow failed and the drop has not landed.
    """
    wrong = _failed_if_known(settings, source)
    drops = _drops(settings, source, None, wrong)
    return [
        {
            "drop": source.drops.label(drop.seq_no),
            **asdict(drop),
            "state": "failed" if drop.state != "landed" and drop.seq_no in wrong else drop.state,
        }
        for drop in drops
    ]


def _failed_if_known(settings: Settings, source: Source) -> set[int]:
    """The drops of `failed_in_airflow`; none if Airflow never ran, or refuses to list them."""
    from spark_jobs.server.airflow_api import AirflowRefused
    from spark_jobs.server.airflow_parts import password_file

    if not password_file(settings).exists():
        return set()
    try:
        return failed_in_airflow(settings, source)
    except AirflowRefused as refusal:
        note(f"which runs failed is not known: {refusal.found}")
        return set()


def for_people(drops: list[dict[str, Any]], source: str) -> Any:
    """A table for people, with one row for neighbouring drops of the same state."""
    rows: list[tuple[Any, ...]] = []
    for state, run in groupby(drops, key=lambda drop: drop["state"]):
        each = list(run)
        sums = [sum(drop[name] for drop in each) for name in ("files", "bytes", "rows")]
        rows.append((each[0]["drop"], each[-1]["drop"], len(each), state, *sums))
    drops_table = table(["from", "to", "drops", "state", "files", "bytes", "rows"], rows)
    if all(drop["state"] == "landed" for drop in drops):
        return drops_table
    return Group(drops_table, Text(f"`tidemark backfill {source} --only-missing` runs those that have not landed"))
