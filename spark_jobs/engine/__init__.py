"""The engine: exact windows, state and history of data that arrive late. `README.md` beside this file is its map.

Each room is a package whose `__init__` is its face; code outside the engine imports faces alone. All rooms but `spark`
hold kernels: numpy, Arrow and numba over columns, without Spark, clock, files or randomness.
"""
