"""The portal: pages on which a person reviews the results of runs. They are plain HTML, served behind Airflow's login
and written as static files, and made from the lake's files without a Spark job.
"""
