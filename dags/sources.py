"""One Airflow DAG for each source file in `dags/sources/`. Files with problems are shown by `source_problems.py`."""

from _factory import read_sources, source_dag

from spark_jobs.config import load_settings

for _name, _source in read_sources(load_settings().sources)[0].items():
    globals()[_name] = source_dag(_source)
