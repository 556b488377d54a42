"""Checks and repairs of a whole lake: published rows are computed again, and stored files are examined.

The faces are `audit.audit` (a source is computed again), `examination.examine_source` (files and records are examined)
and `repair.repair`.
"""
