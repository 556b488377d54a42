"""The index of a source's chunks, brought up to date; see `storage.delta.chunk_index`."""

from __future__ import annotations

from collections.abc import Collection

from spark_jobs.landing import ledger
from spark_jobs.sources import Source
from spark_jobs.storage.delta.chunk_index_writer import write_index
from spark_jobs.storage.delta.records import committed_token
from spark_jobs.storage.descriptions.tables import FILES, chunks
from spark_jobs.storage.lakes.lake import TableReader


def index_chunks(lake: TableReader, source: Source) -> None:
    """Make the index describe the chunks that are there. The caller has the source's lease.

    A query needs no index: an attempt that ends before this leaves more files to look into.
    """

    def find_counted(landings: Collection[int]) -> Collection[int]:
        return ledger.counted_landings(lake, source, among=landings)

    # an attempt with this token or an older one can no longer commit to the ledger
    newest = committed_token(lake.folder.handle(FILES), source.name)
    write_index(lake.folder.handle(chunks(source)), [*source.timelines], find_counted, newest)
