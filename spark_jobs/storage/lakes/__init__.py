"""The lake: its contracts, and the implementations that stages, plans and readers are given."""
