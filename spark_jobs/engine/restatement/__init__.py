"""Restatement: the rows that are desired compared with the published ones, and the corrections between them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.restatement.comparison import (
        CLOSING,
        LIVE,
        PLACED,
        key_codes,
        remaining_codes,
        without_closed,
    )
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = ["CLOSING", "LIVE", "PLACED", "key_codes", "remaining_codes", "without_closed"]
