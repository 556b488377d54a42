"""Names and docstrings that a reader gets at first reading.

A name of a thing is a noun and says what the thing is; a function's name is no bare participle; a docstring begins with
the thing that it is about, or what it does; a class's name names one class.
"""

from __future__ import annotations

import ast
import subprocess

import pytest

from tests.architecture.source_tree import Module, module_of, modules
from tests.architecture.words import (
    ALLOWED_FUNCTIONS,
    ALLOWED_NAMES,
    FOLDERS,
    Room,
    banned_definitions,
    count_words,
    headless_docstrings,
    is_participle,
    modules_at,
    participle_functions,
    shared_class_names,
)


def test_names_of_things_are_nouns() -> None:
    assert [str(place) for module in modules(*FOLDERS) for place in banned_definitions(module)] == []


def test_functions_are_not_named_by_a_participle() -> None:
    assert [str(place) for module in modules(*FOLDERS) for place in participle_functions(module)] == []


def test_each_allowed_name_is_in_use() -> None:
    by_path = {module.path: module for module in modules(*FOLDERS)}
    for path, names in ALLOWED_NAMES.items():
        module = by_path[path]
        elsewhere = module_of(f"elsewhere/{path}", module.text)
        assert names == {place.name for place in banned_definitions(elsewhere)}, path
    functions = {name for module in by_path.values() for name in names_of_functions(module)}
    assert functions >= ALLOWED_FUNCTIONS


def names_of_functions(module: Module) -> set[str]:
    """The names of all functions and methods of a module."""
    return {node.name for node in module.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


NAMED = """
class Report:
    found: int

    def known(self, held):
        self._said = held
        for told in held:
            begun: int = 3
        with open(held) as stands:
            done, (own, rest) = stands, begun
        try:
            print(shown := told)
        except ValueError as standing:
            print(standing.found)
"""


def test_banned_names_are_found_wherever_they_are_given() -> None:
    module = module_of("spark_jobs/x.py", NAMED)
    names = [place.name for place in sorted(banned_definitions(module), key=lambda place: place.line)]
    assert names == [
        *("found", "known", "held", "_said", "told", "begun", "stands", "done", "own", "rest"),
        *("shown", "standing"),
    ]
    assert str(banned_definitions(module_of("spark_jobs/x.py", "done = 3\n"))[0]) == "spark_jobs/x.py:1 done"


def test_reading_a_field_of_an_error_gives_no_name() -> None:
    text = "def message(error):\n    return Refusal(expected='x', found=error.found)\n"
    module = module_of("spark_jobs/x.py", text)
    assert banned_definitions(module) == []
    assert count_words([module])["x"] == Room(functions=1)


def test_a_function_named_by_a_participle_is_found() -> None:
    text = """
def _listed(): ...
class Rows:
    def missing(self): ...
    @property
    def closed(self): ...
    @contextmanager
    def reporting(self): ...
    def read(self): ...
    def need(self): ...
    def stored(self): ...
    def counted_rows(self): ...
    def __missing__(self): ...
"""
    places = participle_functions(module_of("spark_jobs/x.py", text))
    assert [str(place) for place in places] == ["spark_jobs/x.py:2 _listed", "spark_jobs/x.py:4 missing"]


@pytest.mark.parametrize("word", ["counted", "found", "missing"])
def test_participles(word: str) -> None:
    assert is_participle(word)


@pytest.mark.parametrize("word", ["count", "feed", "string", "counted_rows", ""])
def test_words_that_are_no_participles(word: str) -> None:
    assert not is_participle(word)


def test_words_are_counted_by_room() -> None:
    first = module_of("spark_jobs/jobs/a.py", '"""What is."""\nclass Run: ...\ndef counted(known): ...\ndef f(): ...\n')
    second = module_of("spark_jobs/audit/b.py", "class Run: ...\ndef f(rows):\n    return rows.known\n")
    assert count_words([first, second]) == {
        "audit": Room(functions=1, banned=1, classes=1),
        "jobs": Room(functions=2, banned=1, headless=1, participles=1, classes=1),
    }


def test_a_revision_is_read_from_the_repository() -> None:
    first = next(module for module in modules_at("HEAD") if module.path == "spark_jobs/errors.py")
    assert "class TidemarkError" in first.text
    with pytest.raises(subprocess.CalledProcessError):
        modules_at("no-such-revision")


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    assert [
        problem
        for module in modules()
        if not module.path.startswith("tests")
        for problem in headless_docstrings(module)
    ] == []


def test_a_headless_docstring_is_found() -> None:
    text = '"""A module."""\nROWS = 3\n"""What is read."""\ndef f():\n    """Whether it is."""\n'
    problems = headless_docstrings(module_of("spark_jobs/x.py", text))
    assert problems == ["spark_jobs/x.py:3 What is read.", "spark_jobs/x.py:5 Whether it is."]


def test_each_public_class_has_a_name_of_its_own() -> None:
    assert shared_class_names(modules(*FOLDERS)) == {}


def test_a_class_name_that_two_modules_define_is_found() -> None:
    text = "class Run:\n    pass\n\n\nclass _Own:\n    pass\n"
    first, second = module_of("spark_jobs/a.py", text), module_of("spark_jobs/b.py", text)
    assert shared_class_names([first, second]) == {"Run": ["spark_jobs/a.py", "spark_jobs/b.py"]}
