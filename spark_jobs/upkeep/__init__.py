"""Upkeep of a lake between runs: maintenance in steps, and pins, which keep the rows published at a time.

The faces are `maintenance.maintain_source`, `maintenance.maintain_installation` and `pins.make_pin`.
"""
