"""The slow, obvious twins of the kernels: the same results in plain Python. Tests alone import them."""
