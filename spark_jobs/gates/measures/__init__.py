"""What each gate measures, in one pass over what its stage wrote: `bronze`, `trace`, `silver`, `gold`. Bounds are in
`expectations`."""

from spark_jobs.gates.measures.bronze import bronze
from spark_jobs.gates.measures.gold import gold
from spark_jobs.gates.measures.parts import Measurement
from spark_jobs.gates.measures.silver import silver
from spark_jobs.gates.measures.trace import trace

__all__ = ["Measurement", "bronze", "gold", "silver", "trace"]
