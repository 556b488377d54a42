"""Definitions: the contents of a source file in the kernels' terms, its tables, and the version that is published."""
