"""The Great Expectations project of an installation: a file-backed context under `TIDEMARK_HOME/quality`.

It keeps suites, validation results and Data Docs. Gates of several sources may run at once in several processes, and
Great Expectations writes its files without locks. So code that uses the project locks it first (`held_project`).

A gate is judged in memory, in a context of the process's own. A context of files would read its settings and write its
definitions again for each step of a validation. That took three quarters of a small run.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import importlib.util
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expectations.invariant import BREAKING_ROWS
from spark_jobs.config import Settings

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.data_context import FileDataContext
    from great_expectations.datasource.fluent.pandas_datasource import DataFrameAsset

    from expectations.distinct_values import FramesSource

KEPT_RESULTS = 800
"""The number of newest validation results that are kept: 100 days of two sources. Each costs every run 0.5 ms (for the
index page)."""
_PRUNE_BY = 100
_SITE = "local_site"
_SITE_FOLDER = "uncommitted/data_docs"
_DATA_SOURCE = "measures"
_OFFLINE = {"module_name": "spark_jobs.gates.docs_view"}
_INDEX_VIEW, _PAGE_VIEW = "OfflineIndexView", "OfflinePageView"


def quality_dir(settings: Settings) -> Path:
    """The folder of the Great Expectations project."""
    return settings.home / "quality"


def data_docs_index(settings: Settings) -> Path:
    """The index page of the Data Docs. It exists once a run has ended, or a gate has failed."""
    return quality_dir(settings) / "gx" / _SITE_FOLDER / "index.html"


_LAST = "expectations.exact_bounds"
"""The module that `preload` imports last."""


def preload() -> None:
    """Import Great Expectations and our expectations, which takes a second or two; nothing the second time.

    It goes before every other import of Great Expectations, which would take twice as long.
    """
    if _LAST in sys.modules:
        return
    # the thousands of classes that it makes are no garbage, and looking for garbage takes a quarter of the time
    collects = gc.isenabled()
    gc.disable()
    try:
        # one of its expectations, which nobody here uses, imports a third of what it imports in all
        _import_when_used("scipy.stats")
        _preload()
    finally:
        if collects:
            gc.enable()


def _import_when_used(name: str) -> None:
    """Have a module imported when one of its attributes is first asked for."""
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    assert spec is not None, "it is in the lock"
    assert spec.loader is not None, "it is a package of Python files"
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, module)


def _preload() -> None:
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    log = logging.getLogger("great_expectations")
    # it logs each kind of data source whose client is not installed
    log.setLevel(logging.WARNING)
    # this module sets a level of its own, and logs a folder that it makes
    import great_expectations.data_context.types.base  # noqa: F401

    log.getChild("data_context.types.base").setLevel(logging.WARNING)
    # stored suites name these classes
    import expectations.enforcement
    import expectations.exact_bounds  # noqa: F401


@contextmanager
def held_project(settings: Settings) -> Iterator[FileDataContext]:
    """The project, made on first use, and locked against other processes until the block ends."""
    preload()
    folder = quality_dir(settings)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "project.lock").open("a") as lock:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        yield _open(folder)


_opened: dict[Path, tuple[tuple[int, int], FileDataContext]] = {}
"""The folder of the project that this process opened last -> the state of its settings file then, and its context."""


def _open(folder: Path) -> FileDataContext:
    """The context of the project. It is opened anew only if its settings file has changed since the last time."""
    file = folder / "gx" / "great_expectations.yml"
    if folder in _opened and file.exists():
        state, context = _opened[folder]
        if state == _state(file):
            return context
    context = _open_anew(folder)
    _opened.clear()
    _opened[folder] = _state(file), context
    return context


def _state(file: Path) -> tuple[int, int]:
    """The state of a file: the time of its last write in nanoseconds, and its inode."""
    status = file.stat()
    return status.st_mtime_ns, status.st_ino


def _open_anew(folder: Path) -> FileDataContext:
    import great_expectations as gx

    context = gx.get_context(mode="file", project_root_dir=folder)
    stored_site = (context.variables.data_docs_sites or {}).get(_SITE, {})
    if stored_site.get("site_index_builder") != _site()["site_index_builder"]:
        context.update_data_docs_site(_SITE, _site())
    return context


def _site() -> Any:
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": f"{_SITE_FOLDER}/"},
        "site_index_builder": {
            "class_name": "DefaultSiteIndexBuilder",
            "view": {**_OFFLINE, "class_name": _INDEX_VIEW},
        },
        "site_section_builders": {
            section: {"view": {**_OFFLINE, "class_name": _PAGE_VIEW}} for section in ("expectations", "validations")
        }
        | {"profiling": "none"},
    }


@dataclass(frozen=True)
class Batch:
    """The data that a suite judges: one measured row, or a pandas frame.

    `name` is the name of the suite. `breaking_rows` returns rows that break an invariant, given its measures.
    `result_format` is an argument of Great Expectations' `validate`.
    """

    name: str
    source: str
    row: Mapping[str, float | int | str | None] | None = None
    frame: Any = None
    breaking_rows: Callable[[tuple[str, ...]], Sequence[Mapping[str, Any]]] | None = None
    result_format: Any = "COMPLETE"

    def as_frame(self) -> Any:
        """The data as a pandas frame for Great Expectations."""
        if self.row is None:
            return self.frame
        import pandas as pd

        # a separate column of objects for each value, so that a missing value turns no other number into a float
        frame = pd.DataFrame({name: pd.Series([value], dtype=object) for name, value in self.row.items()})
        frame.attrs[BREAKING_ROWS] = self.breaking_rows
        return frame


def validate(
    settings: Settings, batch: Batch, suite: Callable[[], ExpectationSuite], *, run_id: str
) -> list[ExpectationValidationResult]:
    """Judge a batch by a suite, store the result in the project, and return the result of each expectation."""
    preload()
    result = _judge(batch, suite())
    with held_project(settings) as context:
        if _stored_suite(_suite_file(settings, batch.name)) != _without_ids(suite().to_json_dict()):
            context.suites.add_or_update(suite())
        _store(settings, context, batch.name, result, run_name(run_id))
        forget_old_results(context)
    return list(result.results)


_judging = threading.Lock()


def _judge(batch: Batch, suite: ExpectationSuite) -> ExpectationSuiteValidationResult:
    """Great Expectations' judgement of a batch, made in memory."""
    # all threads share one context, whose definitions accumulate
    with _judging:
        batch_of = _definition(batch.source, batch.name).get_batch
        return batch_of({"dataframe": batch.as_frame()}).validate(suite, result_format=batch.result_format)


@functools.cache
def _definition(source: str, suite: str) -> BatchDefinition[Any]:
    return _asset(source).add_batch_definition_whole_dataframe(suite)


@functools.cache
def _asset(source: str) -> DataFrameAsset:
    return _data_source().add_dataframe_asset(source)


@functools.cache
def _data_source() -> FramesSource:
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    import expectations.distinct_values  # noqa: F401

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    # the class is registered under its type
    source: FramesSource = context.data_sources.add_tidemark_frames(_DATA_SOURCE)
    return source


def _store(
    settings: Settings, context: FileDataContext, suite: str, result: ExpectationSuiteValidationResult, run: str
) -> None:
    """Store a validation result, and record that the Data Docs lack its page."""
    from great_expectations import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    run_id = RunIdentifier(run_name=run)
    result.meta |= {"run_id": run_id, "validation_time": run_id.run_time}
    key = ValidationResultIdentifier(
        expectation_suite_identifier=ExpectationSuiteIdentifier(name=suite),
        run_id=run_id,
        batch_identifier=result.batch_id,
    )
    context.validation_results_store.set(key, result)
    with _pending_pages(settings).open("a") as pending:
        pending.write(f"{json.dumps(key.to_tuple())}\n")


def _suite_file(settings: Settings, name: str) -> Path:
    return quality_dir(settings) / "gx" / "expectations" / f"{name}.json"


def _stored_suite(file: Path) -> Any:
    """The suite as the project has stored it, without ids; None if the file is missing or unreadable."""
    try:
        return _without_ids(json.loads(file.read_text()))
    except (OSError, ValueError):
        return None


def _without_ids(part: Any) -> Any:
    """A suite as JSON, or a part of it, without the ids that storing gives to the suite and its expectations."""
    if isinstance(part, list):
        return [_without_ids(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {name: value if name == "kwargs" else _without_ids(value) for name, value in part.items() if name != "id"}


def run_name(run_id: str) -> str:
    """`run_id` as a name for a folder: Airflow's ids contain colons and plus signs, which are replaced."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", run_id)
    return "run" if name in ("", ".", "..") else name


def page_name(source: str) -> str:
    """The name of the Data Docs' page of a result of a source."""
    return f"{_DATA_SOURCE}-{source}.html"


def build_data_docs(settings: Settings) -> int:
    """Bring the Data Docs up to date: make the pages of results that have none, and the index.

    Returns the number of results recorded as lacking a page; does nothing if there are none. A build copies the site's
    style sheets and lists all results, which takes most of a second. So it is done once per run.

    Raises:
        OSError: a page cannot be written; the next build tries again.
    """
    pending = _pending_pages(settings)
    if not pending.exists():
        return 0
    with held_project(settings) as context:
        from great_expectations.data_context.types.resource_identifiers import ValidationResultIdentifier

        lines = pending.read_text().splitlines() if pending.exists() else []
        results = [ValidationResultIdentifier.from_tuple(json.loads(line)) for line in lines]
        kept = {key.to_tuple() for key in context.validation_results_store.list_keys()}
        results_to_build: list[Any] = [result for result in results if result.to_tuple() in kept]
        suites = {
            result.expectation_suite_identifier.name: result.expectation_suite_identifier for result in results_to_build
        }
        changed = [suite for name, suite in suites.items() if not _has_page(settings, name)]
        if results_to_build:
            with _unwritten_pages() as errors:
                context.build_data_docs(resource_identifiers=[*results_to_build, *changed])
            if errors:
                raise errors[0]
        pending.unlink(missing_ok=True)
    return len(lines)


@contextmanager
def _unwritten_pages() -> Iterator[list[OSError]]:
    """The errors because of which pages could not be written during the block; the list fills as they happen.

    Great Expectations itself would log them with a traceback, and go on."""
    errors: list[OSError] = []

    def keep(record: logging.LogRecord) -> bool:
        error = sys.exception()
        if not isinstance(error, OSError):
            return True
        errors.append(error)
        return False

    log = logging.getLogger("great_expectations.render.renderer.site_builder")
    log.addFilter(keep)
    try:
        yield errors
    finally:
        log.removeFilter(keep)


def _has_page(settings: Settings, suite: str) -> bool:
    """True if the Data Docs have a page of the suite that is at least as new as the suite's file."""
    page = data_docs_index(settings).parent / "expectations" / f"{suite}.html"
    return page.exists() and page.stat().st_mtime_ns >= _suite_file(settings, suite).stat().st_mtime_ns


def _pending_pages(settings: Settings) -> Path:
    return quality_dir(settings) / "pages.pending"


def forget_old_results(context: FileDataContext, keep: int = KEPT_RESULTS) -> None:
    """Remove all but the newest `keep` validation results, once there are `_PRUNE_BY` more. The verdicts of all runs
    stay in quality.results."""
    store = context.validation_results_store
    keys: list[Any] = list(store.list_keys())
    if len(keys) < keep + _PRUNE_BY:
        return
    for key in sorted(keys, key=lambda key: key.run_id.run_time, reverse=True)[keep:]:
        store.remove_key(key)
