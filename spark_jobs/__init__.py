"""Tidemark: exact windows, state and history from data that arrives late, out of order and wrong.

`spark_jobs.engine` has the algorithms, and their adapters on Spark for programs of your own. `spark_jobs.jobs` are the
pipeline's stages. Only `scheduling` and `dags` need Airflow.
"""
