"""Descriptions of tables fit where they are kept."""

from __future__ import annotations

from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.people_tables import DISMISSALS, PINS
from spark_jobs.storage.descriptions.schema import LONGEST_COMMENT, Column
from spark_jobs.storage.descriptions.tables import SHARED


def test_comments_of_columns_are_short_enough_for_the_metastore() -> None:
    long = [
        c.name
        for table in (*SHARED, CHAINS, DISMISSALS, PINS)
        for c in table.columns
        if len(c.comment) > LONGEST_COMMENT
    ]
    assert long == []


def test_a_comment_made_of_many_columns_is_cut() -> None:
    told = Column("sums", "ARRAY<DOUBLE>", "é" * 300).ddl()
    assert told == f"`sums` ARRAY<DOUBLE> COMMENT '{'é' * 254}…'"
