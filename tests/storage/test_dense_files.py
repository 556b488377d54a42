"""How files of chunks are laid out: few large chunks to a page, many small ones, and the session as it was before."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.storage.delta.dense_files import PAGE_VALUES, PARQUET_ROWS, dense_files, page_rows
from spark_jobs.storage.descriptions.schema import Column, Table

TABLE = Table(
    "d",
    "t",
    "",
    (
        Column("entity", "STRING", ""),
        Column("row_ids", "ARRAY<BIGINT>", ""),
        Column("t_at", "ARRAY<TIMESTAMP>", ""),
        Column("c_heat", "ARRAY<DOUBLE>", ""),
    ),
)


class Conf:
    """A session's settings; `conf` is itself."""

    def __init__(self, **values: str) -> None:
        self.conf, self.values = self, values

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.values[name] = value

    def unset(self, name: str) -> None:
        del self.values[name]


@pytest.mark.parametrize(
    ("rows", "chunks", "in_page"),
    [
        (5_000_000, 1_000, 6),
        (5_000_000, 5, 1),
        (900 * 3, 900, PAGE_VALUES // 3),
        (7, 7, PARQUET_ROWS),
        (0, 0, 1),
    ],
)
def test_a_page_holds_chunks_of_about_as_many_rows_whatever_their_size(rows: int, chunks: int, in_page: int) -> None:
    assert page_rows(rows, chunks) == in_page


def test_settings_hold_for_the_block_alone_also_when_it_fails() -> None:
    before = {"parquet.writer.version": "PARQUET_1_0", "mine": "kept"}
    session: Any = Conf(**before)  # of a session its settings alone are asked
    with pytest.raises(ZeroDivisionError), dense_files(session, TABLE, 6):
        assert session.values["parquet.page.row.count.limit"] == "6"
        assert session.values["parquet.block.row.count.limit"] == "12"
        assert session.values["parquet.writer.version"] == "PARQUET_2_0"
        plain = [name.split("#")[1] for name in session.values if "#" in name]
        assert plain == ["row_ids.list.element", "t_at.list.element"]
        raise ZeroDivisionError
    assert session.values == before
