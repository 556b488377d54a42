"""The measures of the gates `bronze`, `trace`, `silver` and `gold`. Each gate measures the rows that its stage wrote,
in one pass. The bounds of the measures are in `expectations`."""

from spark_jobs.gates.measures.bronze import bronze
from spark_jobs.gates.measures.gold import gold
from spark_jobs.gates.measures.parts import Measurement
from spark_jobs.gates.measures.silver import silver
from spark_jobs.gates.measures.trace import trace

__all__ = ["Measurement", "bronze", "gold", "silver", "trace"]
