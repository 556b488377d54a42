"""Actions that people take on the portal's pages, as requests to Airflow in their name."""
