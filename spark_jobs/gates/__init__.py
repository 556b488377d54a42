"""Gates between stages: `measures` counts violations of invariants, `run_gate` compares the counts with the suite.

A failed gate raises `GateFailed`, and nothing after it publishes. `expectations/README.md` lists the faults that each
gate stops.
"""

from spark_jobs.gates.gate import judge_gate, refuse_failed, run_gate
from spark_jobs.gates.project import build_data_docs, data_docs_index, preload, quality_dir
from spark_jobs.gates.verdicts import GateFailed, Verdict

__all__ = [
    "GateFailed",
    "Verdict",
    "build_data_docs",
    "data_docs_index",
    "judge_gate",
    "preload",
    "quality_dir",
    "refuse_failed",
    "run_gate",
]
