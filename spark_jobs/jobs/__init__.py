"""The stages, one module each: land, seal, window, compact, publish. Thin: each calls the layers below and returns a
summary.

`stage.run_stage` runs one; Airflow's tasks, `tidemark run` and `spark-submit` all go through it.
"""
