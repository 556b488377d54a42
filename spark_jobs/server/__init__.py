"""The lake server and Airflow on one machine: one warm JVM, its supervisor, its lock, and their health.

`spark_jobs.server.supervisor` starts the parts and ends them together. `spark_jobs.server.lake_lock` lets only one JVM
write a lake. `spark_jobs.server.health` checks each service with a real question.
"""
