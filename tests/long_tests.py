"""Long tests: a slice of them within a budget of minutes, and when each last passed on this machine.

`make test-slice` runs as many modules with long tests as begin within TIDEMARK_SLICE_MINUTES. Their order follows from
the commit, as do the random cases that a commit tries; so over some commits all of them run. The report of passed tests
is in pytest's cache, beside the checkout; `make test-long` prints it.
"""

from __future__ import annotations

import os
import random
import time
from datetime import UTC, datetime

import pytest

from tests.effort import SEED, short_commit

MINUTES = os.environ.get("TIDEMARK_SLICE_MINUTES")
"""The minutes in which modules of a slice begin; None: all chosen tests run."""
PASSED = "tidemark/long_tests_passed"
"""The key in pytest's cache: the time and the commit of the last pass, by the id of a test."""
_SHOWN = 20


class LongTests:
    """A pytest plugin that cuts a slice of the long tests, and keeps when each of them last passed."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._begun = time.monotonic()
        self._chosen: set[str] = set()
        self._passed: set[str] = set()
        self._left: set[str] = set()
        self._going: str | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order a slice's modules by the commit."""
        self._chosen = {item.nodeid for item in items if item.get_closest_marker("long")}
        if MINUTES is None:
            return
        modules = sorted({_module(item) for item in items})
        random.Random(SEED).shuffle(modules)
        items.sort(key=lambda item: modules.index(_module(item)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Leave the tests of a module that would begin after the slice's time. A module that has begun is ended."""
        module = _module(item)
        if MINUTES is None or module == self._going:
            return
        if module not in self._left and time.monotonic() - self._begun < 60 * float(MINUTES):
            self._going = module
            return
        self._left.add(module)
        pytest.skip("waits for another commit")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and report.nodeid in self._chosen:
            self._passed.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Keep what passed, and print which long tests passed when."""
        cache = getattr(self._config, "cache", None)
        # a test may run others without a cache
        if not self._chosen or cache is None:
            return
        pass_now = {"at": datetime.now(UTC).isoformat(timespec="minutes"), "commit": short_commit() or "?"}
        passed = {**(cache.get(PASSED, None) or {}), **dict.fromkeys(self._passed, pass_now)}
        cache.set(PASSED, passed)
        terminalreporter.section("long tests, and when each last passed here")
        passes = sorted((passed[test]["at"], passed[test]["commit"], test) for test in self._chosen if test in passed)
        for test in sorted(self._chosen - passed.keys()):
            terminalreporter.line(f"never             -         {test}")
        for at, commit, test in passes[:_SHOWN]:
            terminalreporter.line(f"{at} {commit:9} {test}")
        if len(passes) > _SHOWN:
            terminalreporter.line(f"and {len(passes) - _SHOWN} more, which passed later")


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
