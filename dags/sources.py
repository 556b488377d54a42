"""One Airflow DAG for each source file in `dags/sources/`. Files with problems are shown by `source_problems.py`."""

from _factory import source_dag
from airflow.sdk import get_parsing_context

from spark_jobs.config import load_settings
from spark_jobs.sources import find_source, read_sources
from spark_jobs.sources.folder import source_files

_folder, _asked = load_settings().sources, get_parsing_context().dag_id
# a task needs the DAG of its own source, and hundreds of others would take it seconds
if _asked is not None and _asked in source_files(_folder):
    _sources = {_asked: find_source(_folder, _asked)}
else:
    _sources = read_sources(_folder).sources
for _name, _source in _sources.items():
    globals()[_name] = source_dag(_source)
