"""A map of the product, printed by `make map`: rooms with their sizes, the arrows between them, circles, and calls.

A room is a layer of `test_imports`. A walk follows the names that a function calls, as far as they are functions of the
product that the module imports or defines, each function once. It shows how many functions and modules a reader meets
who follows a stage from its first line. Methods are not followed: their class is not known without running the code.
A function of the engine's face counts as one, and is not followed: whoever reads the product need not read the engine.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator

from tests.architecture.source_tree import Module, defining_module, imports, modules
from tests.architecture.test_imports import cycles, layer_of, layer_problems

WALKS = (
    ("jobs.stages", "land"),
    ("jobs.preparation", "prepare_run"),
    ("jobs.land", "land_files"),
    ("judging.judges", "judge_landings"),
    ("jobs.stages", "seal"),
    ("jobs.seal", "advance_trace"),
    ("judging.judges", "judge_moves"),
    ("jobs.stages", "window"),
    ("jobs.window", "restate_windows"),
    ("judging.judges", "judge_windows"),
    ("jobs.stages", "compact"),
    ("jobs.compact", "restate_states"),
    ("judging.judges", "judge_states"),
    ("jobs.publish", "publish"),
)
"""The functions from which walks begin: each stage, and the parts of it that a reader can look at alone."""

Place = tuple[str, str]
"""A function: the name of its module, and its own."""


def print_map() -> int:
    """Print the map; returns the number of imports that no layer allows, and of circles between rooms."""
    arrows: dict[str, set[str]] = defaultdict(set)
    lines: dict[str, int] = defaultdict(int)
    files: dict[str, int] = defaultdict(int)
    for module in modules():
        room = layer_of(module.name) or module.name
        lines[room] += module.text.count("\n")
        files[room] += 1
        targets = {layer_of(found.target) for found in imports(module)}
        arrows[room] |= {target for target in targets if target is not None and target != room}
    print(f"{'room':24}{'files':>6}{'lines':>8}  imports")
    for room in sorted(lines):
        print(f"{room:24}{files[room]:6}{lines[room]:8}  {' '.join(sorted(arrows[room]))}")
    total = sum(len(targets) for targets in arrows.values())
    print(f"{'':24}{sum(files.values()):6}{sum(lines.values()):8}  {total} arrows")
    circles = [*room_circles(arrows)]
    for circle in circles:
        print(f"circle of rooms: {' → '.join(circle)}")
    for met_again in cycles(modules()):
        print(f"circle of modules: {' → '.join(met_again)}")
    print(f"\n{'walk from':24}{'functions':>10}{'modules':>9}{'rooms':>7}")
    functions = product_functions()
    for module_name, function in WALKS:
        met = walk((f"spark_jobs.{module_name}", function), functions)
        homes = {module for module, _ in met}
        label = function if module_name == "jobs.stages" else f"  {function}"
        print(f"{label:24}{len(met):10}{len(homes):9}{len({layer_of(home) for home in homes}):7}")
    problems = [problem for module in modules() for problem in layer_problems(module)]
    for problem in problems:
        print(problem)
    return len(problems) + len(circles)


def room_circles(arrows: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    """The pairs of rooms that import each other."""
    for room, targets in sorted(arrows.items()):
        for target in sorted(targets):
            if room < target and room in arrows.get(target, set()):
                yield room, target


def product_functions() -> dict[Place, tuple[Module, ast.FunctionDef]]:
    """Every function of a module's top level, by its place."""
    return {
        (module.name, node.name): (module, node)
        for module in modules()
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef)
    }


def imported_names(module: Module) -> dict[str, Place]:
    """The names that a module imports from others, with the places that they name."""
    return {
        alias.asname or alias.name: (defining_module(node.module, alias.name), alias.name)
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def called_places(module: Module, function: ast.FunctionDef) -> Iterator[Place]:
    """The places of the functions that a function names: in calls, and where it hands them on."""
    names = imported_names(module)
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            yield names.get(node.id, (module.name, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            package, name = names[node.value.id]
            yield f"{package}.{name}", node.attr


def walk(start: Place, functions: dict[Place, tuple[Module, ast.FunctionDef]]) -> set[Place]:
    """The functions that a reader meets from a function on, the first one included."""
    met, waiting = {start}, [start]
    while waiting:
        module, function = functions[waiting.pop()]
        if layer_of(module.name) == "engine":
            continue
        new = {place for place in called_places(module, function) if place in functions} - met
        met |= new
        waiting.extend(new)
    return met


if __name__ == "__main__":
    sys.exit(min(print_map(), 1))
