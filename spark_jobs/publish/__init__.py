"""What a publication is for people: marts, built by dbt."""
