"""Changes of a source as a whole: environments and promotions, another name, a reset, the removal of all it has.

The faces are `environments.build`, `promotion.promote`, `renaming.rename_source` and `removal.remove_source`.
"""
