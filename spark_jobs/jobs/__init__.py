"""The run of a source. `stages` has all of it on one page: preparation, the stages' work, their judges, publication.

`stage.run_stage` runs a stage; Airflow's tasks, `tidemark run` and `spark-submit` all call it. A stage's work is in the
module of its name (`land`, `seal`, `window`, `compact`); the judges are in `spark_jobs.judging`. `visits` lets work
between runs hold a source.
"""
