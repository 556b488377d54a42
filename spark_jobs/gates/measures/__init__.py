"""What each gate measures, one query per gate: `bronze`, `trace`, `silver`, `gold`. Bounds are in `expectations`."""

from spark_jobs.gates.measures.bronze import bronze
from spark_jobs.gates.measures.gold import gold
from spark_jobs.gates.measures.query import Measurement
from spark_jobs.gates.measures.silver import silver
from spark_jobs.gates.measures.trace import trace

__all__ = ["Measurement", "bronze", "gold", "silver", "trace"]
