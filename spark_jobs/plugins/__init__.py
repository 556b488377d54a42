"""A team's own code: aggregates of windows, triggers of their early results, and formats of landed files, in Python
files of a folder of its own (`TIDEMARK_PLUGINS`).

A file declares its parts by `aggregate`, `trigger` and `landing_format`; source files name them like built-in
ones. The code that a source names travels to Spark's workers as text (`code`): they have neither folder nor file.
"""

from spark_jobs.aggregates import Number
from spark_jobs.plugins.declaring import aggregate, landing_format, trigger

__all__ = ["Number", "aggregate", "landing_format", "trigger"]
