"""The sources of settings, and secrets within them. `spark_jobs.config` has the settings themselves."""
