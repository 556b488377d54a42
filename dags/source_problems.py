"""Fails to import while a source file has problems, so that Airflow shows them, and the other sources' DAGs still run.

Airflow shows an import error per Python file, and a file that fails makes no DAG: hence a file of its own.
"""

from _factory import read_sources

from spark_jobs.config import load_settings

_problems = read_sources(load_settings().sources)[1]
if _problems:
    raise ExceptionGroup("source files without a DAG", _problems)
