"""The algorithms: numpy, Arrow and numba over columns. No Spark, no clock, no I/O, no randomness.

Each kernel has a slow, obvious twin beside it that the tests compare it with.
"""
