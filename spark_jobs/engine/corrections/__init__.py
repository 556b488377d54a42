"""The correction buffer: late data and backfills become small, exact diffs.

`CodedCorrections` takes integer codes of rows. The workers that restate windows, and the states of chains, insert the
desired rows (+) and the published rows (−); a run writes the rows that are left (`engine.restatement`).
`CorrectionBuffer` is the interface for data of any type, for programs of your own: no run uses it. Neither needs Spark.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.corrections.buffer import CodedCorrections
    from spark_jobs.engine.corrections.columns import Updates
    from spark_jobs.engine.corrections.intake import as_updates
    from spark_jobs.engine.corrections.magnitudes import DIFF_LIMIT, greatest_magnitude, greatest_sums
    from spark_jobs.engine.corrections.valued import CorrectionBuffer, Corrections
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "DIFF_LIMIT",
    "CodedCorrections",
    "CorrectionBuffer",
    "Corrections",
    "Updates",
    "as_updates",
    "greatest_magnitude",
    "greatest_sums",
]
