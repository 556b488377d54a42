"""Corrections: late data and backfills become small, exact diffs.

`CodedCorrections` takes integer codes of rows. The workers that restate windows, and the states of chains, put what is
desired (+) and what is published (−) through one; what it has left is what a run writes (`kernels.comparison`).
`CorrectionBuffer` is its face for data of any type, for programs of your own: no run uses it. Neither needs Spark.
"""

from spark_jobs.kernels.corrections.buffer import CodedCorrections
from spark_jobs.kernels.corrections.columns import Updates
from spark_jobs.kernels.corrections.intake import as_updates
from spark_jobs.kernels.corrections.valued import CorrectionBuffer, Corrections

__all__ = ["CodedCorrections", "CorrectionBuffer", "Corrections", "Updates", "as_updates"]
