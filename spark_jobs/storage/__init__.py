"""The only package that describes the lake's tables: their columns, how they are written, and who may write them.

Its rooms, from the bottom up: `descriptions`, `delta`, `lakes`; on top of these `names` and `coordination`.
"""
