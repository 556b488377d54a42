"""Trials without an installation: a source is run in a scratch folder, by `tidemark try` and `tidemark test`.

The faces are `trial.try_files`, `trial.try_source` and `source_tests.run_tests`.
"""
