"""One Airflow DAG for each source file in `dags/sources/`. Files with problems are shown by `source_problems.py`."""

from _factory import source_dag

from spark_jobs.config import load_settings
from spark_jobs.sources import read_sources

for _name, _source in read_sources(load_settings().sources).sources.items():
    globals()[_name] = source_dag(_source)
