"""What may import what: each layer lists the layers and libraries it may use, and anything not listed is refused.

Imports inside functions and under TYPE_CHECKING count too: a delayed import saves time, it does not move a boundary.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pytest

from tests.architecture.source_tree import ROOT, Module, imports, module_of, modules

FOUNDATION = {"model", "errors", "threads"}
"""What everybody in `spark_jobs` may import."""

LAYERS: dict[str, set[str]] = {
    "model": set(),
    "errors": set(),
    "threads": set(),
    "config": set(),
    "s3": set(),
    "sample": set(),
    "aggregates": set(),
    "session_settings": set(),
    "arrow_batches": set(),
    "exchange": set(),
    "memory": set(),
    "code_version": set(),
    "kernels": set(),
    "plugins": {"aggregates"},
    "sources": {"aggregates", "kernels", "plugins"},
    "server.errors": set(),
    "server.lake_lock": {"config", "server.errors"},
    "server.java": {"server.errors"},
    "server.class_archive": set(),
    "server.logins": {"config", "server.errors"},
    "server.listeners": {"config", "server.errors"},
    "server.thrift_client": {"config", "server.errors", "server.listeners", "server.logins"},
    "server.connect_client": {"config", "server.errors", "server.listeners"},
    "server.preloaded": {"config", "server.listeners"},
    "server.guard": {"config", "server.errors", "server.java"},
    "failures": {"config", "memory"},
    "server.jars": {"config", "s3", "server.errors", "server.guard", "server.java"},
    "session": {
        *("config", "s3", "server.class_archive", "server.errors", "server.guard", "server.jars", "server.java"),
        *("server.connect_client", "server.lake_lock"),
    },
    "chunks": {"kernels", "sources", "storage"},
    "windows": {"arrow_batches", "kernels"},
    "corrections": {"kernels"},
    "checkpoints": {"kernels", "storage"},
    "storage": {"kernels", "s3", "session_settings", "sources"},
    "landing": {"exchange", "kernels", "plugins", "sources", "storage"},
    "extraction": {"config", "landing", "server.guard", "sources", "storage"},
    "trace": {"exchange", "kernels", "memory", "sources", "storage"},
    "definitions": {"aggregates", "kernels", "sources", "storage"},
    "restatement": {
        *("checkpoints", "corrections", "definitions", "exchange", "kernels", "memory", "sources", "storage", "trace"),
        "windows",
    },
    "reads": {"checkpoints", "definitions", "kernels", "restatement", "sources", "storage", "trace"},
    "gates": {
        "config",
        "definitions",
        "exchange",
        "expectations",
        "kernels",
        "reads",
        "restatement",
        "sources",
        "storage",
        "trace",
    },
    "publish": {
        "config",
        "definitions",
        "failures",
        "gates",
        "restatement",
        "server.errors",
        "server.logins",
        "server.thrift_client",
        "sources",
        "storage",
        "trace",
    },
    "jobs": {
        *(
            "arrow_batches",
            "backup",
            "checkpoints",
            "code_version",
            "config",
            "definitions",
            "expectations",
            "extraction",
            "gates",
            "kernels",
            "landing",
            "publish",
            "reads",
        ),
        *("restatement", "sample", "session", "sources", "storage", "trace"),
    },
    "backup": {"config", "failures", "s3", "sources", "storage"},
    "portal": {
        *("config", "definitions", "expectations", "gates", "kernels", "reads", "restatement", "sources", "storage"),
        "trace",
    },
    "scheduling": {"config", "portal", "sources", "storage"},
    "server": {
        *(
            "code_version",
            "config",
            "server.class_archive",
            "server.connect_client",
            "server.errors",
            "server.guard",
            "server.jars",
            "server.java",
            "server.lake_lock",
            "server.listeners",
            "server.logins",
            "server.thrift_client",
            "session",
        ),
        "sources",
    },
    "cli": {
        "failures",
        *("backup", "checkpoints", "chunks", "config", "definitions", "gates", "jobs", "kernels", "landing", "portal"),
        *("publish", "reads", "restatement", "sample"),
        *("server", "server.errors", "server.java", "server.lake_lock", "session", "sources", "storage", "trace"),
        "windows",
    },
    "expectations": set(),
    "dags": {"config", "failures", "scheduling", "sources", "server", "server.errors", "storage"},
}
"""Per layer (a package or module of `spark_jobs`, or a top-level folder) the other layers it may import. The longest
matching name decides: `server.errors` is a layer of its own, below `server`."""

INSIDE_TASKS: dict[str, set[str]] = {
    "dags": {"gates", "jobs", "landing", "publish", "session"},
    "scheduling": {"landing", "trace"},
}
"""Layers that may be imported inside functions alone: a task runs long after its DAG file was parsed."""

ROOMS: dict[str, set[str]] = {
    "descriptions": set(),
    "delta": {"descriptions"},
    "lakes": {"delta", "descriptions"},
    "names": {"delta", "descriptions", "lakes"},
    "coordination": {"delta", "descriptions", "lakes"},
}
"""The rooms of `storage`, with the others that each may import, also for types alone."""

ARROW = {"numpy", "pyarrow"}
SPARK = {*ARROW, "pyspark"}

LIBRARIES: dict[str, set[str]] = {
    "config": {"pydantic", "pydantic_settings"},
    "kernels": {*ARROW, "numba"},
    "sources": {"pydantic", "pydantic_core", "yaml"},
    "session": {"grpc", "pyspark"},
    "arrow_batches": {"pyspark"},
    "exchange": SPARK,
    "memory": {"psutil", "pyarrow"},
    "session_settings": {"pyspark"},
    "checkpoints": SPARK,
    "chunks": SPARK,
    "corrections": SPARK,
    "windows": SPARK,
    "storage": {*SPARK, "delta", "deltalake"},
    "landing": SPARK,
    "extraction": {*SPARK, "py4j"},
    "trace": SPARK,
    "definitions": SPARK,
    "restatement": SPARK,
    "reads": SPARK,
    "gates": {*SPARK, "great_expectations", "jinja2", "pandas"},
    "publish": {*SPARK, "dbt", "yaml"},
    # Airflow's provider of OpenLineage, where lineage is told
    "jobs": {*SPARK, "airflow", "openlineage", "structlog"},
    "portal": {*ARROW, "airflow", "deltalake", "fastapi", "jinja2", "starlette"},
    "server": {
        *("cryptography", "httpx", "psutil", "pyarrow", "pyhive", "pyspark", "structlog", "thrift"),
        *("thrift_sasl", "yaml"),
    },
    "server.class_archive": {"pyspark"},
    "server.preloaded": {"airflow"},
    "server.listeners": {"httpx"},
    "server.connect_client": {"grpc", "pyspark"},
    "server.thrift_client": {"pyhive", "thrift", "thrift_sasl"},
    "server.guard": {"pyspark"},
    "server.jars": {"pyspark"},
    "server.lake_lock": {"psutil"},
    "cli": {"httpx", "psutil", "pyarrow", "pyspark", "rich", "typer", "yaml"},
    "expectations": {"great_expectations", "numpy", "pandas"},
    "dags": {"airflow", "structlog"},
    "backup": {"deltalake", "pyarrow"},
    "scheduling": {"airflow", "asgiref", "pendulum", "sqlalchemy"},
}
"""Third-party libraries per layer; a layer that is not here uses the standard library alone."""

KERNELS_NEVER = {
    "os",
    "time",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "tempfile",
    "pathlib",
    "shutil",
}
"""A kernel is a function of its arguments: no clock, no chance, no files, no processes."""

DAGS_NEVER_WHEN_PARSED = ("pyspark", "spark_jobs.jobs", "spark_jobs.session")
"""Airflow parses a DAG file again and again: it must not start Spark or load the jobs."""

SPARK_FREE = ("spark_jobs.sources", "spark_jobs.kernels", "spark_jobs.config")
"""Packages that work without pyspark, and so never load it when they are imported, directly or through others."""


def layer_of(name: str) -> str | None:
    """The layer that owns a module name; None for what is not the product's."""
    top, _, inner = name.partition(".")
    if top in ("expectations", "dags"):
        return top
    if top != "spark_jobs" or not inner:
        return "spark_jobs" if top == "spark_jobs" else None
    return max((layer for layer in LAYERS if f"{inner}.".startswith(f"{layer}.")), key=len, default=inner.split(".")[0])


def layer_problems(module: Module) -> list[str]:
    """Imports of layers and libraries that the module's layer does not list."""
    own = layer_of(module.name)
    if own == "spark_jobs":
        return [f"{module.path}:{i.line} the package itself imports {i.target}" for i in imports(module)]
    if own not in LAYERS:
        return [f"{module.path}: layer {own!r} is not listed"]
    allowed = LAYERS[own] | {own} | FOUNDATION
    later = INSIDE_TASKS.get(own, set())
    libraries = LIBRARIES.get(own, set())
    problems = []
    for found in imports(module):
        target, top = layer_of(found.target), found.target.split(".")[0]
        if target is not None:
            fine = target in allowed or target == "spark_jobs" or (found.deferred and target in later)
        else:
            fine = top in sys.stdlib_module_names or top in libraries
        if not fine:
            problems.append(f"{module.path}:{found.line} {own} imports {found.target}")
    return problems


def room_problems(module: Module) -> list[str]:
    """Imports between the rooms of `storage` that `ROOMS` does not list."""
    room = module.name.removeprefix("spark_jobs.storage.").split(".")[0]
    if room not in ROOMS:
        return []
    others = [(found, found.target.removeprefix("spark_jobs.storage.").split(".")[0]) for found in imports(module)]
    return [
        f"{module.path}:{found.line} {room} imports {other}"
        for found, other in others
        if other in ROOMS and other not in {room, *ROOMS[room]}
    ]


def missing_modules(module: Module) -> list[str]:
    """Imports of modules of the product that do not exist. mypy passes over them: it may not see every library."""
    known = {other.name for other in modules()}
    ours = [found for found in imports(module) if found.target.split(".")[0] == "spark_jobs"]
    return [f"{module.path}:{found.line} imports {found.target}" for found in ours if found.target not in known]


def kernel_problems(module: Module) -> list[str]:
    """Imports that would make a kernel depend on more than its arguments."""
    if layer_of(module.name) != "kernels":
        return []
    tops = [(found, found.target.split(".")[0]) for found in imports(module)]
    return [f"{module.path}:{found.line} imports {found.target}" for found, top in tops if top in KERNELS_NEVER]


def loaded_with(all_modules: Iterable[Module]) -> dict[str, list[str]]:
    """Per module what it imports outside functions."""
    edges = {}
    for module in all_modules:
        targets = {found.target for found in imports(module) if not found.deferred}
        edges[module.name] = sorted(targets - {module.name})
    return edges


def loads(edges: dict[str, list[str]], start: str, forbidden: tuple[str, ...]) -> list[str]:
    """A shortest path along which importing `start` loads something forbidden; empty if none does."""
    paths, seen = [[start]], {start}
    while paths:
        path = paths.pop(0)
        if f"{path[-1]}.".startswith(tuple(f"{name}." for name in forbidden)):
            return path
        # a module's packages are loaded before it
        above = [package for package in edges if f"{path[-1]}.".startswith(f"{package}.")]
        for target in (*above, *edges.get(path[-1], [])):
            if target not in seen:
                seen.add(target)
                paths.append([*path, target])
    return []


def parsing_problems(all_modules: Iterable[Module]) -> list[list[str]]:
    """Paths along which parsing a DAG, or importing a package that is free of Spark, loads what it must not."""
    edges = loaded_with(all_modules)
    dags = [loads(edges, name, DAGS_NEVER_WHEN_PARSED) for name in edges if layer_of(name) == "dags"]
    free = [
        loads(edges, name, ("pyspark",))
        for name in edges
        if f"{name}.".startswith(tuple(f"{package}." for package in SPARK_FREE))
    ]
    return [path for path in (*dags, *free) if path]


def cycles(all_modules: Iterable[Module]) -> list[list[str]]:
    """Cycles among imports that run at import time; packages count only where their own file imports."""
    edges = loaded_with(all_modules)
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            found.append([*path[path.index(name) :], name])
        elif name not in done:
            for target in edges.get(name, []):
                visit(target, [*path, name])
            done.add(name)

    for name in edges:
        visit(name, [])
    return found


def test_every_layer_imports_only_what_it_lists() -> None:
    assert [problem for module in modules() for problem in layer_problems(module)] == []


def test_every_room_of_storage_imports_only_rooms_below_it() -> None:
    assert [problem for module in modules() for problem in room_problems(module)] == []
    rooms = {path.name for path in (ROOT / "spark_jobs/storage").iterdir() if path.is_dir() and path.name[0] != "_"}
    assert rooms == set(ROOMS)
    upwards = module_of("spark_jobs/storage/delta/x.py", "from spark_jobs.storage.lakes.lake import Lake")
    assert room_problems(upwards)


def test_every_imported_module_exists() -> None:
    assert [problem for module in modules() for problem in missing_modules(module)] == []
    assert missing_modules(module_of("spark_jobs/x.py", "from spark_jobs.storage.nowhere import Lake"))


def test_kernels_depend_on_nothing_but_their_arguments() -> None:
    assert [problem for module in modules() for problem in kernel_problems(module)] == []


def test_parsing_a_dag_and_the_spark_free_packages_load_no_spark() -> None:
    assert parsing_problems(modules()) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert cycles(modules()) == []


def test_layers_form_no_circle() -> None:
    done: set[str] = set()

    def visit(layer: str, path: tuple[str, ...]) -> None:
        assert layer not in path, " -> ".join((*path, layer))
        if layer not in done:
            for below in LAYERS.get(layer, set()) - {layer}:
                visit(below, (*path, layer))
            done.add(layer)

    for layer in LAYERS:
        visit(layer, ())


def test_every_package_is_a_listed_layer() -> None:
    found = {layer_of(module.name) for module in modules()} - {"spark_jobs"}
    assert found <= set(LAYERS)
    assert {"kernels", "storage", "errors", "model"} <= found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("spark_jobs/kernels/x.py", "import pyspark"),
        ("spark_jobs/kernels/x.py", "from spark_jobs.config import Settings"),
        ("spark_jobs/kernels/deep/x.py", "from ...storage import lake"),
        ("spark_jobs/errors.py", "def f():\n    import numpy"),
        ("spark_jobs/windows/x.py", "if TYPE_CHECKING:\n    from spark_jobs.storage.lakes.lake import Lake"),
        ("spark_jobs/trace/x.py", "from delta import DeltaTable"),
        ("spark_jobs/novelty/x.py", "import json"),
        ("dags/x.py", "from spark_jobs.jobs import land"),
        ("dags/x.py", "def task():\n    import pandas"),
    ],
)
def test_a_forbidden_import_is_found(path: str, text: str) -> None:
    assert len(layer_problems(module_of(path, text))) == 1


def test_a_kernel_that_reads_the_clock_is_found() -> None:
    assert kernel_problems(module_of("spark_jobs/kernels/x.py", "from time import time"))
    assert not kernel_problems(module_of("spark_jobs/server/x.py", "import time"))


def test_a_dag_that_loads_spark_when_parsed_is_found() -> None:
    helper = module_of("spark_jobs/config.py", "from pyspark.sql import functions")
    dag = module_of("dags/x.py", "import spark_jobs.config")
    assert parsing_problems([dag, helper])[0] == ["dags.x", "spark_jobs.config", "pyspark.sql"]
    assert not parsing_problems([module_of("dags/x.py", "def task():\n    import pyspark")])


def test_a_circle_of_modules_is_found() -> None:
    circle = [module_of("spark_jobs/a.py", "import spark_jobs.b"), module_of("spark_jobs/b.py", "import spark_jobs.a")]
    assert cycles(circle) == [["spark_jobs.a", "spark_jobs.b", "spark_jobs.a"]]
