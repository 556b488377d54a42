"""Reads of published data: as it was known at a time, why it has its values, and which landing brought it.

Nothing in this package writes.
"""
