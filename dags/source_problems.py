"""Fails to import while a source file has problems, so that Airflow shows them, and the other sources' DAGs still run.

Airflow shows an import error per Python file, and a file that fails makes no DAG: hence a file of its own.
"""

from spark_jobs.config import load_settings
from spark_jobs.sources import read_sources

_problems = read_sources(load_settings().sources).problems()
if _problems:
    raise ExceptionGroup("source files with problems", _problems)
