"""Benchmarks are run by hand, so nothing else would notice that one no longer imports."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.architecture.source_tree import Module, imports, modules


@pytest.mark.parametrize("benchmark", modules("tests/benchmarks"), ids=lambda module: module.path)
def test_each_module_that_a_benchmark_imports_is_there(benchmark: Module) -> None:
    own = ("spark_jobs", "tests")
    targets = {each.target for each in imports(benchmark)}
    modules_named = {target if target.split(".")[0] in own else target.split(".")[0] for target in targets}
    assert [name for name in sorted(modules_named) if find_spec(name) is None] == []
