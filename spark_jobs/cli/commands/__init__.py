"""One module per command or family of commands; see `spark_jobs.cli` for how to add one."""
