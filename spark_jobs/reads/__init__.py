"""Reads: what is published, as it was known at a time, why it says so, and who brought it. Nothing in here writes."""
