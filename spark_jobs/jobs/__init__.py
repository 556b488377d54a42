"""The stages, one module each: land, seal, window, compact, publish; and other jobs on whole sources.

A stage's module is thin: it calls the layers below and fills the stage's summary. `stage.run_stage` runs a stage;
Airflow's tasks, `tidemark run` and `spark-submit` all call it.
"""
