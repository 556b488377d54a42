"""Hashes: 64-bit hashes of texts and of rows, and Bloom filters, which find what may have occurred before."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.hashes.identities import BloomFilter, Hashes, hashes_of, ranges_of
    from spark_jobs.engine.hashes.rows import bag, hashes, in_share, row_hashes
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = ["BloomFilter", "Hashes", "bag", "hashes", "hashes_of", "in_share", "ranges_of", "row_hashes"]
