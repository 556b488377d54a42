"""Sorted runs on the local disk of a worker."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa


class RunFiles:
    """A `RunStore` in a folder of its own, which is removed at the end; it has one Arrow file per run.

    The folder is in the first of Spark's local folders, which Spark clears if a worker dies.
    """

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._runs = 0

    def __enter__(self) -> RunFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def save(self, chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Write the chunks to a file. The returned iterator reads it part by part, once."""
        if self._folder is None:
            local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
            self._folder = tempfile.TemporaryDirectory(
                prefix="windows-", dir=local if local and Path(local).is_dir() else None
            )
        path = str(Path(self._folder.name) / f"{self._runs}.arrow")
        self._runs += 1
        writer = None
        with pa.OSFile(path, "wb") as sink:
            for chunk in chunks:
                writer = writer or pa.ipc.new_stream(sink, chunk.schema)
                writer.write_table(chunk)
            if writer is not None:
                writer.close()
        return iter(()) if writer is None else _read(path)


def _read(path: str) -> Iterator[pa.Table]:
    with pa.OSFile(path, "rb") as source, pa.ipc.open_stream(source) as batches:
        for batch in batches:
            yield pa.Table.from_batches([batch])
    # a run is read once
    Path(path).unlink()
