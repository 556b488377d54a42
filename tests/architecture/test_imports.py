"""What may import what: each layer lists the layers and libraries it may use, and anything not listed is refused.

Imports inside functions and under TYPE_CHECKING count too: a delayed import saves time, it does not move a boundary.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from importlib import import_module

import pytest

from tests.architecture.source_tree import ROOT, Module, face_names, imports, module_of, modules

FOUNDATION = {"model", "errors", "step_lines", "threads"}
"""What everybody in `spark_jobs` may import."""

LAYERS: dict[str, set[str]] = {
    "model": set(),
    "errors": set(),
    "step_lines": set(),
    "threads": set(),
    "settings": {"settings.file"},
    "settings.file": set(),
    "config": {"s3", "settings", "settings.file"},
    "s3": {"settings.file"},
    "sample": {"storage"},
    "aggregates": set(),
    "session_settings": set(),
    "arrow_batches": set(),
    "csv_lines": set(),
    "statements": set(),
    "sql_refusals": set(),
    "distribution": {"memory"},
    "exchange": {"distribution"},
    "memory": set(),
    "code_version": set(),
    "engine": set(),
    "plugins": {"aggregates", "settings.file"},
    "sources": {"aggregates", "engine", "plugins"},
    "server.errors": set(),
    "server.state": {"config"},
    "server.lake_lock": {"config", "server.errors", "storage"},
    "jvm": {"code_version", "config", "s3", "settings", "settings.file"},
    "server.logins": {"config", "server.errors"},
    "server.listeners": {"config", "server.errors"},
    "server.thrift_client": {"config", "server.errors", "server.listeners", "server.logins"},
    "server.connect_client": {"config", "server.errors", "server.listeners"},
    "server.preloaded": {"config", "server.listeners"},
    "failures": {"config", "engine", "jvm", "memory", "reads"},
    "session": {
        *("config", "distribution", "jvm", "s3", "server.connect_client", "server.errors", "server.lake_lock"),
    },
    "engine.spark": {"arrow_batches", "engine", "storage"},
    "storage": {"engine", "s3", "session_settings", "sources"},
    "landing": {"distribution", "exchange", "engine", "plugins", "sources", "storage"},
    "extraction": {"config", "jvm", "landing", "sources", "storage"},
    "trace": {"distribution", "exchange", "engine", "memory", "sources", "storage"},
    "definitions": {"engine", "sources", "storage"},
    "restatement": {
        *("definitions", "distribution", "engine", "engine.spark", "exchange", "memory", "sources", "storage"),
        "trace",
    },
    "reads": {"definitions", "engine", "engine.spark", "restatement", "sources", "storage", "trace"},
    "gates": {
        "config",
        "definitions",
        "distribution",
        "exchange",
        "expectations",
        "engine",
        "restatement",
        "sources",
        "storage",
        "trace",
    },
    "publish": {
        "config",
        "definitions",
        "failures",
        "restatement",
        "server.errors",
        "server.logins",
        "server.state",
        "server.thrift_client",
        "sources",
        "storage",
    },
    "judging": {
        "config",
        "definitions",
        "gates",
        "engine",
        "landing",
        "publish",
        "restatement",
        "session",
        "sources",
        "storage",
        "trace",
    },
    "jobs": {
        "engine.spark",
        "code_version",
        "config",
        "definitions",
        "extraction",
        "gates",
        "judging",
        "engine",
        "landing",
        "publish",
        "reads",
        "restatement",
        "sample",
        "session",
        "sources",
        "storage",
        "trace",
    },
    "plans": {
        *("config", "definitions", "extraction", "jobs", "judging", "landing", "restatement", "sources"),
        *("storage", "trace"),
    },
    "audit": {
        "engine.spark",
        "config",
        "definitions",
        "expectations",
        "gates",
        "jobs",
        "judging",
        "jvm",
        "engine",
        "landing",
        "reads",
        "restatement",
        "session",
        "sources",
        "storage",
        "trace",
    },
    "upkeep": {
        "audit",
        "backup",
        "engine.spark",
        "config",
        "definitions",
        "jobs",
        "engine",
        "reads",
        "restatement",
        "session",
        "sources",
        "storage",
        "trace",
    },
    "lifecycle": {
        "backup",
        "config",
        "definitions",
        "jobs",
        "judging",
        "engine",
        "landing",
        "plans",
        "restatement",
        "sources",
        "storage",
        "trace",
        "upkeep",
    },
    "erasure": {
        "config",
        "definitions",
        "jobs",
        "engine",
        "landing",
        "lifecycle",
        "publish",
        "reads",
        "restatement",
        "sources",
        "storage",
        "trace",
        "upkeep",
    },
    "trials": {"config", "definitions", "gates", "jobs", "engine", "landing", "sources", "storage"},
    "projects": {"config"},
    "backup": {"config", "failures", "s3", "settings", "sources", "storage"},
    "portal": {
        *("config", "definitions", "expectations", "gates", "engine", "reads", "restatement", "sources", "storage"),
        *("trace", "csv_lines", "server.errors", "server.logins", "server.thrift_client", "sql_refusals", "statements"),
    },
    "scheduling": {"config", "portal", "sources", "storage"},
    "server": {
        *(
            "code_version",
            "config",
            "jvm",
            "server.connect_client",
            "server.errors",
            "server.lake_lock",
            "server.listeners",
            "server.logins",
            "server.state",
            "server.thrift_client",
            "session",
            "settings",
        ),
        *("sources", "storage"),
    },
    "cli": {
        *("csv_lines", "failures", "sql_refusals", "statements"),
        *(
            "backup",
            "code_version",
            "config",
            "definitions",
            "engine",
            "gates",
            "jobs",
            "landing",
            "portal",
        ),
        *("audit", "erasure", "lifecycle", "plans", "projects", "trials", "upkeep"),
        *("publish", "reads", "restatement", "sample"),
        *("server", "server.errors", "server.state", "session", "settings", "settings.file", "sources", "storage"),
        "trace",
    },
    "expectations": set(),
    "dags": {"config", "failures", "scheduling", "sources", "server", "storage"},
}
"""Per layer (a package or module of `spark_jobs`, or a top-level folder) the other layers it may import. The longest
matching name decides: `server.errors` is a layer of its own, below `server`."""

INSIDE_TASKS: dict[str, set[str]] = {
    "dags": {"audit", "gates", "jobs", "landing", "plans", "publish", "session", "upkeep"},
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

ENGINE_ROOMS: dict[str, set[str]] = {
    "faces": set(),
    "columns": set(),
    "calendar": set(),
    "hashes": {"columns"},
    "updates": {"calendar", "columns"},
    "records": {"calendar"},
    "chunks": {"columns"},
    "deltas": {"columns"},
    "windows": {"calendar", "columns"},
    "arrangement": {"updates"},
    "corrections": {"updates"},
    "restatement": {"columns", "corrections", "windows"},
    "measures": {"calendar", "columns", "hashes", "restatement", "windows"},
    "in_memory": {"deltas"},
    "twins": {"chunks", "corrections", "deltas", "records", "updates", "windows"},
    "spark.checkpoints": {"columns", "deltas"},
    "spark.chunks": {"chunks"},
    "spark.windows": {"restatement", "windows"},
}
"""The rooms of the engine, likewise. Each but `faces` and `twins` is a face, which code elsewhere may import."""

NEVER_IN_A_RUN = {"engine.in_memory", "engine.twins"}
"""Rooms of the engine that no module of the product imports: programs of users, or tests, do."""

ARROW = {"numpy", "pyarrow"}
SPARK = {*ARROW, "pyspark"}

LIBRARIES: dict[str, set[str]] = {
    "settings": {"pydantic", "pydantic_settings"},
    "settings.file": set(),
    "config": {"pydantic", "pydantic_settings"},
    "engine": {*ARROW, "numba"},
    "engine.spark": SPARK,
    "sources": {"pydantic", "pydantic_core", "yaml"},
    "session": {"grpc", "pyspark"},
    "arrow_batches": {"pyspark"},
    "distribution": {"pyspark"},
    "exchange": SPARK,
    "memory": {"psutil", "pyarrow"},
    "session_settings": {"pyspark"},
    "storage": {*SPARK, "delta", "deltalake", "tenacity"},
    "landing": SPARK,
    "extraction": {*SPARK, "py4j"},
    "trace": SPARK,
    "definitions": SPARK,
    "restatement": SPARK,
    "reads": SPARK,
    "gates": {*SPARK, "great_expectations", "jinja2", "pandas"},
    "publish": {*SPARK, "dbt", "yaml"},
    "judging": SPARK,
    # Airflow's provider of OpenLineage, where lineage is told
    "jobs": {*SPARK, "airflow", "openlineage", "structlog"},
    "plans": SPARK,
    "audit": SPARK,
    "upkeep": SPARK,
    "lifecycle": SPARK,
    "erasure": SPARK,
    "trials": ARROW,
    "portal": {
        *ARROW,
        "airflow",
        "deltalake",
        "httpx",
        "fastapi",
        "jinja2",
        "markdown_it",
        "markupsafe",
        "prometheus_client",
        "pyhive",
        "sqlglot",
        "starlette",
        "structlog",
        "TCLIService",
        "thrift",
    },
    "server": {
        *("cryptography", "httpx", "psutil", "pyarrow", "pyhive", "pyspark", "structlog", "thrift"),
        *("thrift_sasl", "yaml"),
    },
    "jvm": {"pyspark"},
    "server.preloaded": {"airflow"},
    "server.listeners": {"httpx"},
    "server.connect_client": {"grpc", "pyspark"},
    "server.thrift_client": {"pyhive", "thrift", "thrift_sasl"},
    "server.lake_lock": {"psutil"},
    "server.state": {"psutil"},
    "cli": {"httpx", "prometheus_client", "psutil", "pyarrow", "pyspark", "rich", "typer", "yaml"},
    "expectations": {"great_expectations", "numpy", "pandas"},
    "dags": {"airflow", "structlog"},
    "backup": {"deltalake", "pyarrow", "tenacity"},
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

DAGS_NEVER_WHEN_PARSED = ("pyspark", "spark_jobs.jobs", "spark_jobs.plans", "spark_jobs.session", "spark_jobs.upkeep")
"""Airflow parses a DAG file again and again: it must not start Spark or load the jobs."""

SPARK_FREE = (
    *("spark_jobs.sources", "spark_jobs.config"),
    *(f"spark_jobs.engine.{room}" for room in ENGINE_ROOMS if not room.startswith("spark.")),
)
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


def room_problems(module: Module, layer: str, rooms: dict[str, set[str]]) -> list[str]:
    """Imports between the rooms of a layer that `rooms` does not list."""
    room = room_of(module.name, layer, rooms)
    others = [(found, room_of(found.target, layer, rooms)) for found in imports(module)]
    return [
        f"{module.path}:{found.line} {room} imports {other}"
        for found, other in others
        if room and other and other not in {room, "faces", *rooms[room]}
    ]


def room_of(name: str, layer: str, rooms: Iterable[str]) -> str | None:
    """The room of a layer that a module is in; None if it is in none."""
    inner = name.removeprefix(f"spark_jobs.{layer}.")
    return next((room for room in rooms if f"{inner}.".startswith(f"{room}.") and inner != name), None)


def door_problems(module: Module) -> list[str]:
    """Imports of the engine, outside of it, that pass by its faces or that reach rooms which no run needs."""
    if f"{module.name}.".startswith("spark_jobs.engine."):
        return []
    doors = {f"spark_jobs.engine.{room}" for room in ENGINE_ROOMS} - {"spark_jobs.engine.faces"}
    closed = {f"spark_jobs.{room}" for room in NEVER_IN_A_RUN}
    targets = [(found.line, found.target) for found in imports(module)]
    # a module's name as text, which `import_module` may take
    targets += [
        (node.lineno, node.value)
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.]+", node.value)
    ]
    return [
        f"{module.path}:{line} imports {target}"
        for line, target in targets
        if target.startswith("spark_jobs.engine.") and target not in doors - closed
    ]


def unused_names(face: Module, users: Iterable[Module], documents: Iterable[str]) -> list[str]:
    """The names of a face that no module outside of the engine imports and no document mentions."""
    imported = {
        alias.name
        for user in users
        for node in user.nodes
        if isinstance(node, ast.ImportFrom) and node.module == face.name
        for alias in node.names
    }
    words = {word for text in documents for word in re.findall(r"\w+", text)}
    return sorted(set(face_names(face)) - imported - words)


def missing_modules(module: Module) -> list[str]:
    """Imports of modules of the product that do not exist. mypy passes over them: it may not see every library."""
    known = {other.name for other in modules()}
    ours = [found for found in imports(module) if found.target.split(".")[0] == "spark_jobs"]
    return [f"{module.path}:{found.line} imports {found.target}" for found in ours if found.target not in known]


def kernel_problems(module: Module) -> list[str]:
    """Imports that would make a kernel depend on more than its arguments."""
    if layer_of(module.name) != "engine":
        return []
    tops = [(found, found.target.split(".")[0]) for found in imports(module)]
    return [f"{module.path}:{found.line} imports {found.target}" for found, top in tops if top in KERNELS_NEVER]


def loaded_with(all_modules: Iterable[Module]) -> dict[str, list[str]]:
    """Per module what it imports outside functions."""
    edges = {}
    for module in all_modules:
        loaded = [found for found in imports(module) if not found.deferred]
        targets = {found.target for found in loaded} | {found.defining for found in loaded}
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


@pytest.mark.parametrize(("layer", "rooms"), [("storage", ROOMS), ("engine", ENGINE_ROOMS)])
def test_every_room_imports_only_rooms_below_it(layer: str, rooms: dict[str, set[str]]) -> None:
    assert [problem for module in modules() for problem in room_problems(module, layer, rooms)] == []
    folders = {path.name for path in (ROOT / "spark_jobs" / layer).iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders == {room.split(".")[0] for room in rooms} - {"faces"}
    used: dict[str, set[str]] = {room: set() for room in rooms}
    for module in modules():
        room = room_of(module.name, layer, rooms)
        if room:
            used[room] |= {room_of(found.target, layer, rooms) or room for found in imports(module)}
    assert {room: below - used[room] for room, below in rooms.items() if below - used[room]} == {}


def test_an_import_of_a_room_above_is_found() -> None:
    upwards = module_of("spark_jobs/storage/delta/x.py", "from spark_jobs.storage.lakes.lake import Lake")
    assert room_problems(upwards, "storage", ROOMS)
    upwards = module_of("spark_jobs/engine/columns/x.py", "from spark_jobs.engine.windows.exact import sums")
    assert room_problems(upwards, "engine", ENGINE_ROOMS)


def test_the_product_imports_faces_of_the_engine_alone() -> None:
    assert [problem for module in modules() for problem in door_problems(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        "from spark_jobs.engine.records.times import DAY_US",
        "from spark_jobs.engine.records import times",
        "import spark_jobs.engine.windows.exact",
        "from spark_jobs.engine.twins import windows",
        "from spark_jobs.engine.in_memory import Chains",
        'import_module("spark_jobs.engine.windows.aggregates")',
    ],
)
def test_an_import_that_passes_by_the_faces_is_found(text: str) -> None:
    assert len(door_problems(module_of("spark_jobs/landing/x.py", text))) == 1
    assert not door_problems(module_of("spark_jobs/landing/x.py", "from spark_jobs.engine.records import ERASED"))
    assert not door_problems(module_of("spark_jobs/engine/records/x.py", text))


FACES = [module for module in modules() if face_names(module)]


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.name.removeprefix("spark_jobs.engine."))
def test_a_face_offers_what_it_lists_and_only_what_somebody_needs(face: Module) -> None:
    loaded = import_module(face.name)
    assert sorted(face_names(face)) == sorted(loaded.__all__)
    for name, defining in face_names(face).items():
        assert getattr(loaded, name) is getattr(import_module(defining), name)
    # a submodule that is imported becomes an attribute of its package, and would hide a name like its own
    assert not {f"{face.name}.{name}" for name in face_names(face)} & {module.name for module in modules()}
    users = [module for module in modules() if not f"{module.name}.".startswith("spark_jobs.engine.")]
    documents = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "spark_jobs/engine").rglob("*.md")]
    assert unused_names(face, users, [path.read_text(encoding="utf-8") for path in documents]) == []


def test_every_room_of_the_engine_has_a_face() -> None:
    rooms = {face.name.removeprefix("spark_jobs.engine.") for face in FACES}
    assert rooms == set(ENGINE_ROOMS) - {"faces", "twins"}


def test_a_name_of_a_face_that_nobody_needs_is_found() -> None:
    text = "if TYPE_CHECKING:\n    from spark_jobs.engine.x.y import A, B, C\n__getattr__ = lazy_names(__name__)"
    face = module_of("spark_jobs/engine/x/__init__.py", text)
    user = module_of("spark_jobs/landing/x.py", "from spark_jobs.engine.x import A")
    assert unused_names(face, [user], ["the name `B`"]) == ["C"]


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


def test_every_edge_that_a_layer_lists_is_used() -> None:
    used: dict[str, set[str]] = {}
    for module in modules():
        own = layer_of(module.name)
        if own is not None:
            targets = {layer_of(found.target) for found in imports(module)}
            used.setdefault(own, set()).update(target for target in targets if target is not None)
    listed = {layer: allowed | INSIDE_TASKS.get(layer, set()) for layer, allowed in LAYERS.items()}
    assert {
        layer: edges - used.get(layer, set()) for layer, edges in listed.items() if edges - used.get(layer, set())
    } == {}


def test_every_package_is_a_listed_layer() -> None:
    found = {layer_of(module.name) for module in modules()} - {"spark_jobs"}
    assert found <= set(LAYERS)
    assert {"engine", "storage", "errors", "model"} <= found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("spark_jobs/engine/windows/x.py", "import pyspark"),
        ("spark_jobs/engine/windows/x.py", "from spark_jobs.config import Settings"),
        ("spark_jobs/engine/windows/deep/x.py", "from ....storage import lake"),
        ("spark_jobs/errors.py", "def f():\n    import numpy"),
        ("spark_jobs/engine/windows/x.py", "if TYPE_CHECKING:\n    from spark_jobs.storage.lakes.lake import Lake"),
        ("spark_jobs/trace/x.py", "from delta import DeltaTable"),
        ("spark_jobs/novelty/x.py", "import json"),
        ("dags/x.py", "from spark_jobs.jobs import land"),
        ("dags/x.py", "def task():\n    import pandas"),
    ],
)
def test_a_forbidden_import_is_found(path: str, text: str) -> None:
    assert len(layer_problems(module_of(path, text))) == 1


def test_a_kernel_that_reads_the_clock_is_found() -> None:
    assert kernel_problems(module_of("spark_jobs/engine/x.py", "from time import time"))
    assert not kernel_problems(module_of("spark_jobs/server/x.py", "import time"))


def test_a_dag_that_loads_spark_when_parsed_is_found() -> None:
    helper = module_of("spark_jobs/config.py", "from pyspark.sql import functions")
    dag = module_of("dags/x.py", "import spark_jobs.config")
    assert parsing_problems([dag, helper])[0] == ["dags.x", "spark_jobs.config", "pyspark.sql"]
    assert not parsing_problems([module_of("dags/x.py", "def task():\n    import pyspark")])


def test_a_circle_of_modules_is_found() -> None:
    circle = [module_of("spark_jobs/a.py", "import spark_jobs.b"), module_of("spark_jobs/b.py", "import spark_jobs.a")]
    assert cycles(circle) == [["spark_jobs.a", "spark_jobs.b", "spark_jobs.a"]]
