"""Corrections: late data and backfills become small, exact diffs.

`CorrectionBuffer` takes data of any type; `CodedCorrections` takes integer row codes and is the fast path of the
pipeline. Neither needs Spark.
"""

from spark_jobs.kernels.corrections.buffer import CodedCorrections
from spark_jobs.kernels.corrections.columns import Updates
from spark_jobs.kernels.corrections.intake import as_updates
from spark_jobs.kernels.corrections.valued import CorrectionBuffer, Corrections

__all__ = ["CodedCorrections", "CorrectionBuffer", "Corrections", "Updates", "as_updates"]
