-- PostgreSQL runs this once, when its volume is empty: a database beside that of Airflow, for the catalog of tables.
CREATE DATABASE catalog;
