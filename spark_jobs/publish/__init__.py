"""Marts: tables for people that dbt builds from a publication."""
