"""Tidemark: exact windows, state and history from data that arrives late, out of order and wrong.

The package is the engine. `spark_jobs.windows`, `spark_jobs.trace`, `spark_jobs.corrections`, `spark_jobs.checkpoints`
and `spark_jobs.chunks` are importable without Airflow; `spark_jobs.jobs` are the pipeline's stages;
`spark_jobs.kernels` holds the algorithms, which use neither Spark nor a clock.
"""
