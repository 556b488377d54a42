"""Erasure: a lake in which the rows of an entity, or of a value, never landed.

The face is `erase`: `find` counts its rows, `erase` removes them. `search` and `words` find texts, `history`
replays states and chains publication by publication, `account` keeps the counts of erased rows.
"""
