"""A team's own code: aggregates of windows and formats of landed files, in Python files of a folder of its own
(`TIDEMARK_PLUGINS`).

A file says what it has by `aggregate` and `landing_format`; source files name it like what ships. What a source names
travels to Spark's workers as text (`code`): they have neither the folder nor the file.
"""

from spark_jobs.aggregates import Number
from spark_jobs.plugins.declaring import aggregate, landing_format

__all__ = ["Number", "aggregate", "landing_format"]
