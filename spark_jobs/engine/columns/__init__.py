"""Columns: Arrow columns of plain values as numpy arrays, equality, whole groups, shares, texts of sequences."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.columns.grouping import whole_groups
    from spark_jobs.engine.columns.lists import Lists
    from spark_jobs.engine.columns.plain import (
        Flags,
        Ints,
        among,
        are,
        numbers,
        present,
        repeated_values,
        within_ranges,
    )
    from spark_jobs.engine.columns.sequences import sequence_texts
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "Flags",
    "Ints",
    "Lists",
    "among",
    "are",
    "numbers",
    "present",
    "repeated_values",
    "sequence_texts",
    "whole_groups",
    "within_ranges",
]
