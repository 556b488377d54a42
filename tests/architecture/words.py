"""Counts of words that are hard to read, printed by `make words`: one line for each room, and one for all rooms.

`make words AT=v1` counts in another revision, so that counts before and after a change can be compared. A room is a
layer of `test_imports`, or `docs`. `test_words` uses the same functions and refuses these words in most rooms.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.architecture.source_tree import PRODUCT, ROOT, Module, module_of, modules
from tests.architecture.test_imports import layer_of

FOLDERS = (*PRODUCT, "docs")

BANNED = frozenset(
    {"found", "held", "told", "shown", "standing", "known", "stands", "said", "done", "begun", "own", "rest"}
)
"""Names that say what happened to a thing or how it is, and not what the thing is; also with an underscore in front."""

HEADLESS = frozenset({"What", "Whether", "Those", "That", "Which", "How"})
"""First words of a clause without a noun: a reader learns at its end, if at all, what the thing is."""

IRREGULAR = frozenset(
    {
        *("begun", "bound", "bought", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "driven"),
        *("fallen", "forgotten", "found", "frozen", "given", "gone", "grown", "held", "hidden"),
        *("kept", "known", "laid"),
        *("led", "left", "lost", "made", "meant", "met", "paid", "risen", "said", "seen", "sent", "shown", "sold"),
        *("sought", "spent", "spoken", "stolen", "stood", "swept", "sworn", "taken", "taught", "thought", "thrown"),
        *("told", "torn", "understood", "worn", "woven", "written"),
    }
)
"""Past participles that do not end in `ed`."""

NOT_PARTICIPLES = frozenset(
    {
        *("bed", "embed", "exceed", "feed", "need", "proceed", "red", "seed", "shed", "speed", "succeed"),
        *("bring", "finding", "heading", "king", "landing", "ping", "reading", "ring", "string", "thing"),
        *("warning", "windowing"),
    }
)
"""Verbs and nouns that end in `ed` or `ing`."""

ALLOWED_NAMES: dict[str, frozenset[str]] = {
    # parts of the format of errors and findings, which programs read by these names
    **{
        f"spark_jobs/{path}": frozenset({"found"})
        for path in (
            "errors.py",
            "engine/arrangement/errors.py",
            "engine/chunks/stored.py",
            "engine/corrections/intake.py",
            "engine/corrections/kinds.py",
            "engine/records/headers.py",
            "engine/records/parquet.py",
            "engine/spark/windows/parameters.py",
            "engine/updates/refusals.py",
        )
    },
    "spark_jobs/model.py": frozenset({"found"}),
    "spark_jobs/sources/problems.py": frozenset({"found"}),
    "spark_jobs/trials/source_tests.py": frozenset({"found"}),
    "spark_jobs/upkeep/maintenance.py": frozenset({"found"}),
    # a key of the JSON document of `tidemark plan`
    "spark_jobs/plans/plan.py": frozenset({"known"}),
    # a parameter of the decorator that a team's own code calls
    "spark_jobs/plugins/declaring.py": frozenset({"shown"}),
    # a key that the macros of dbt read
    "spark_jobs/publish/marts.py": frozenset({"shown"}),
}
"""Banned names that a file may use, since others know them."""

ALLOWED_FUNCTIONS = frozenset(
    {
        # Airflow keeps this name with a task that waits for an answer
        "answered",
        # of lakes and of the trace's planes: the engine calls it, too
        "stored",
        # of names in SQL, such as `silver`.`windows`: the engine calls it, too
        "qualified",
    }
)
"""Participles that may name a function."""


@dataclass(frozen=True)
class Place:
    """A name in a file: of a function, a parameter, a local variable or a field."""

    path: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}"


@dataclass(frozen=True)
class Room:
    """The counts of a room. `classes`: public classes whose name another module defines, too."""

    functions: int = 0
    banned: int = 0
    headless: int = 0
    participles: int = 0
    classes: int = 0

    def __add__(self, other: Room) -> Room:
        return Room(
            self.functions + other.functions,
            self.banned + other.banned,
            self.headless + other.headless,
            self.participles + other.participles,
            self.classes + other.classes,
        )


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_of(module: Module) -> Iterator[Function]:
    """Every function and method of a module, also those inside other functions."""
    return (node for node in module.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def banned_definitions(module: Module) -> list[Place]:
    """The places where a module gives a banned name to a function, a parameter, a variable or a field."""
    allowed = ALLOWED_NAMES.get(module.path, frozenset())
    places = (_definition(module, node) for node in module.nodes)
    return [place for place in places if place is not None and place.name.strip("_") in BANNED - allowed]


def _definition(module: Module, node: ast.AST) -> Place | None:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return Place(module.path, node.lineno, name)
        case ast.arg(arg=name):
            return Place(module.path, node.lineno, name)
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return Place(module.path, node.lineno, name)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return Place(module.path, node.lineno, name)
    return None


def uses_banned_name(function: Function) -> bool:
    """True if a function has a banned name, or defines or reads something that has one.

    Reads of an attribute `found` do not count, since errors have one; nor do the names of keyword arguments, since
    they are repetitions of a parameter of another function.
    """
    for node in ast.walk(function):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name) | ast.Name(id=name):
                if name.strip("_") in BANNED:
                    return True
            case ast.Attribute(attr=name):
                if name.strip("_") in BANNED - {"found"}:
                    return True
    return False


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """The docstrings of a module: its own, of classes and functions, and the texts below fields and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def headless_docstrings(module: Module) -> list[str]:
    """The docstrings that begin with one of the words in `HEADLESS`, each with its place."""
    return [
        f"{module.path}:{docstring.lineno} {str(docstring.value).strip()[:60]}"
        for docstring in docstrings(module.tree)
        if str(docstring.value).strip().partition(" ")[0] in HEADLESS
    ]


def participle_functions(module: Module) -> list[Place]:
    """The functions whose name is one participle.

    Properties are left out, since they are read as fields are, and context managers: `with reporting(steps):`. So are
    Python's own names, such as `__missing__`."""
    return [
        Place(module.path, function.lineno, function.name)
        for function in functions_of(module)
        if is_participle(function.name.removeprefix("_"))
        and function.name not in ALLOWED_FUNCTIONS
        and not _reads_as_a_phrase(function)
    ]


def is_participle(word: str) -> bool:
    """True for `counted`, `found` and `missing`, but not for `count`, `feed` or `counted_rows`."""
    return word in IRREGULAR or (word.isalpha() and word.endswith(("ed", "ing")) and word not in NOT_PARTICIPLES)


def _reads_as_a_phrase(function: Function) -> bool:
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(decorator.endswith(("property", "contextmanager")) for decorator in decorators)


def shared_class_names(sources: Iterable[Module]) -> dict[str, list[str]]:
    """The names of public classes that several modules define, with these modules."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in sources:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def modules_at(revision: str) -> list[Module]:
    """The modules of a revision of the repository. Raises CalledProcessError if there is no such revision."""
    archive = subprocess.run(["git", "archive", revision, *FOLDERS], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        sources = [(entry.name, files.extractfile(entry)) for entry in files if entry.name.endswith(".py")]
        return [module_of(path, file.read().decode()) for path, file in sources if file is not None]


def room_of(module: Module) -> str:
    """The room of a module: its layer, or its uppermost folder."""
    return layer_of(module.name) or module.name.partition(".")[0]


def count_words(sources: Iterable[Module]) -> dict[str, Room]:
    """The counts of each room, in the order of their names."""
    sources = list(sources)
    twice = Counter(path for paths in shared_class_names(sources).values() for path in paths)
    rooms: dict[str, Room] = defaultdict(Room)
    for module in sources:
        functions = list(functions_of(module))
        rooms[room_of(module)] += Room(
            functions=len(functions),
            banned=sum(uses_banned_name(function) for function in functions),
            headless=len(headless_docstrings(module)),
            participles=len(participle_functions(module)),
            classes=twice[module.path],
        )
    return {room: rooms[room] for room in sorted(rooms)}


def print_words(sources: Iterable[Module]) -> None:
    """Print the counts of each room that has functions, and their sums."""
    rooms = count_words(sources)
    columns = (
        f"{'functions':>10}{'with a banned name':>20}{'share':>8}{'headless':>10}{'participles':>13}{'classes':>9}"
    )
    print(f"{'room':24}{columns}")
    for name, room in [*rooms.items(), ("all", sum(rooms.values(), Room()))]:
        if room.functions:
            share = f"{100 * room.banned / room.functions:.1f}%"
            counts = f"{room.functions:10}{room.banned:20}{share:>8}"
            print(f"{name:24}{counts}{room.headless:10}{room.participles:13}{room.classes:9}")
    print(
        f"\nBanned names: {' '.join(sorted(BANNED))}."
        "\nHeadless: docstrings that begin with What, Whether, Those, That, Which or How."
        "\nParticiples: functions named by one participle, but for properties and context managers."
        "\nClasses: names that two modules define."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count words that are hard to read, by room.")
    parser.add_argument("--at", metavar="REVISION", help="count in this revision (default: the files as they are)")
    at = parser.parse_args().at
    print_words(modules_at(at) if at else modules(*FOLDERS))
