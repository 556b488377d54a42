"""Corrections: late data and backfills become small, exact diffs.

`CodedCorrections` takes integer codes of rows. The workers that restate windows, and the states of chains, insert the
desired rows (+) and the published rows (−); a run writes the rows that are left (`kernels.comparison`).
`CorrectionBuffer` is the interface for data of any type, for programs of your own: no run uses it. Neither needs Spark.
"""

from spark_jobs.kernels.corrections.buffer import CodedCorrections
from spark_jobs.kernels.corrections.columns import Updates
from spark_jobs.kernels.corrections.intake import as_updates
from spark_jobs.kernels.corrections.valued import CorrectionBuffer, Corrections

__all__ = ["CodedCorrections", "CorrectionBuffer", "Corrections", "Updates", "as_updates"]
