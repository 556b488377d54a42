"""Chunks whose rows of the same time are ordered by a sequence.

Row ids are replaced by the places of the rows in the order by (sequence, row id), so that a store orders rows by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.columns.sequences import sequence_texts, tie_places

Ints = npt.NDArray[np.int64]


def with_places(chunks: pa.Table, sequence: Sequence[str]) -> tuple[pa.Table, Ints]:
    """Stored chunks (see `stored`) with places as `row_ids`, and the row id of each place.

    A row that came and went has the same place in both chunks. The order of rows in a chunk stays, so places need not
    ascend there.

    Args:
        sequence: components that order rows, each a column `c_C` of the table.
    """
    lists = chunks["row_ids"].combine_chunks()
    row_ids = lists.flatten().to_numpy()
    lengths = lists.value_lengths().to_numpy()
    texts = sequence_texts([_of_rows(chunks[f"c_{name}"].combine_chunks(), lengths) for name in sequence])
    places = tie_places(texts, row_ids)
    ids = np.zeros(int(places.max(initial=-1)) + 1, np.int64)
    ids[places] = row_ids
    starts = np.append(0, np.cumsum(lengths)).astype(np.int32)
    least = np.minimum.reduceat(places, starts[:-1]) if len(places) else places
    for name, column in (("row_ids", pa.ListArray.from_arrays(starts, places)), ("first_row_id", pa.array(least))):
        chunks = chunks.set_column(chunks.schema.get_field_index(name), name, column)
    return chunks, ids


def _of_rows(lists: pa.ListArray, lengths: Ints) -> pa.Array:
    """The values row by row, with nulls for the rows of a chunk without a list."""
    given = np.repeat(lists.is_valid().to_numpy(zero_copy_only=False), lengths)
    place = np.cumsum(given) - 1
    return lists.flatten().take(pa.array(place, mask=~given))
