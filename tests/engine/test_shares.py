"""Shares of whole numbers against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.engine.columns.shares import floor_of_share

NUMBERS = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 200), max_size=6)


@given(st.floats(0, 1) | st.decimals(0, 1, places=2).map(float), NUMBERS)
def test_a_share_of_a_number_is_the_floor_of_the_exact_product(share: float, numbers: list[int]) -> None:
    expected = [Fraction(str(share)) * number // 1 for number in numbers]
    assert floor_of_share(share, np.array(numbers, np.int64)).tolist() == expected
