"""The places of files among row ids: they give the file and line of a row id, and ensure that no two files share an
id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.errors import TidemarkError
from spark_jobs.landing.ledger import Version
from spark_jobs.sources import Source
from spark_jobs.sources.drops import LINE_BITS, drop_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RowIdsShared(TidemarkError):
    """Lines of two files of a drop would have the same row ids. Facts: `source`, `drop`, `files`."""

    code = "row_ids_shared"


@dataclass(frozen=True)
class Places:
    """Files by their ranges of row ids `[firsts, lasts]`, both included: ascending, and no two with an id in common."""

    firsts: npt.NDArray[np.int64]
    lasts: npt.NDArray[np.int64]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, versions: Iterable[Version], source: Source) -> Places:
        """The places of these files.

        Raises:
            RowIdsShared: the ranges of two files overlap.
        """
        placed = sorted(
            (v.first_row_id, v.last_row_id, v.path)
            for v in versions
            if v.first_row_id is not None and v.last_row_id is not None
        )
        for one, other in pairwise(placed):
            if other[0] <= max(one[0], one[1]):
                raise _shared_ids_error(source, one[2], other[2], drop_of(one[0]))
        firsts, lasts = (np.array([place[i] for place in placed], np.int64) for i in (0, 1))
        return cls(firsts, lasts, tuple(path for _, _, path in placed))

    def files(self, row_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The index in `paths` of the file of each row id, -1 for an id that no file has."""
        before = np.searchsorted(self.firsts, row_ids, "right") - 1
        return np.where((before >= 0) & (row_ids <= self.lasts[before]), before, -1) if self.paths else before

    def locate(self, rows: DataFrame) -> DataFrame:
        """The rows whose `row_id` belongs to one of these files, with `file` and `line`."""
        # a file has fewer ids than there are with the same upper bits, so its ids have one or two values of these: the
        # join is on an equal value, and compares a row with the few files near it
        near = [
            (stretch, first, last, path)
            for first, last, path in zip(self.firsts.tolist(), self.lasts.tolist(), self.paths, strict=True)
            for stretch in range(first >> LINE_BITS, (last >> LINE_BITS) + 1)
        ]
        schema = "stretch BIGINT, first BIGINT, last BIGINT, file STRING"
        files = F.broadcast(rows.sparkSession.createDataFrame(near, schema))
        is_own = (F.shiftright("row_id", LINE_BITS) == F.col("stretch")) & F.col("row_id").between(
            F.col("first"), F.col("last")
        )
        line = (F.col("row_id") - F.col("first") + 1).alias("line")
        return rows.join(files, is_own).select(*rows.columns, "file", line)


def _shared_ids_error(source: Source, one: str, other: str, seq_no: int) -> RowIdsShared:
    drop = source.drops.label(seq_no)
    return RowIdsShared(
        expected=f"row ids of their own for the lines of each file of drop {drop} of {source.name}",
        found=f"{one} so long that its last lines would have those of {other}: where a file's ids begin follows from"
        " its path, and these two begin next to each other",
        consequence="nothing was landed",
        next_step="rename the one that has not landed; if both have, take one of them back"
        f" (`tidemark retract {source.name} --drop {drop} --file …`), then rename it",
        source=source.name,
        drop=drop,
        files=[one, other],
    )
