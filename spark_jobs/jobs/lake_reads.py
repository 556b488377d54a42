"""Reads of the lake in any process: of its files where they can be opened, else through a Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_jobs.config import Settings
from spark_jobs.session import working_session
from spark_jobs.storage.lakes.lake import TableReader
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.lakes.stored_lake import StoredLake


@contextmanager
def lake_for_reads(settings: Settings, name: str) -> Iterator[TableReader]:
    """The lake for reads of its records. Where only Spark can open it, a session is opened under this name."""
    stored = StoredLake.at(settings.lake)
    if stored is not None:
        yield stored
        return
    with working_session(settings, name) as session:
        yield SparkLake(session)
