"""Definitions: what a source file says in the kernels' terms, its tables, and the version that is published."""
