"""Importing Great Expectations takes seconds: tests that do are marked `slow`."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes seconds without a JVM, for what it has to import")
