"""The portal: what runs left, where a person reviews it. Pages of plain HTML, served behind Airflow's login and written
as static files, made of the lake's files without a Spark job.
"""
