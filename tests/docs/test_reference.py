"""The generated reference is complete, and every link of the documentation leads somewhere."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import typer
import yaml

from docs.generate import reference_pages
from docs.generate.rejections import OF_SQL, limits_of_readers
from docs.generate.source_file import parts
from docs.hooks import matching_pages
from spark_jobs.aggregates import AGGREGATES
from spark_jobs.cli.app import build_app
from spark_jobs.config import Settings
from spark_jobs.engine.records.rules import FILE_RULES, RULES
from spark_jobs.engine.windows import POLICIES
from spark_jobs.errors import TidemarkError
from spark_jobs.settings.sources import REQUIRED, SECRETS
from spark_jobs.sources.emissions import EARLY_TRIGGERS
from spark_jobs.sources.schema import json_schema
from spark_jobs.sources.windows import PolicyName
from tests.architecture.source_tree import ROOT, modules
from tests.docs.markdown_links import broken_links, links, page_anchors

DOCS = ROOT / "docs"


@functools.cache
def reference() -> dict[str, str]:
    return reference_pages()


@functools.cache
def all_pages() -> dict[str, str]:
    """The pages of the site by their path below `docs`: those written by hand, and the generated ones."""
    by_hand = {file.relative_to(DOCS).as_posix(): file.read_text(encoding="utf-8") for file in DOCS.rglob("*.md")}
    generated = {f"reference/{path}": text for path, text in reference().items()}
    return {path: text for path, text in by_hand.items() if not path.startswith("reference/")} | generated


def command_words(app: typer.Typer, before: str = "") -> Iterator[str]:
    """The words of every command, from what was registered with Typer."""
    for command in app.registered_commands:
        assert command.callback is not None
        yield before + (command.name or command.callback.__name__.replace("_", "-"))
    for group in app.registered_groups:
        assert group.typer_instance is not None
        name = group.name or group.typer_instance.info.name
        yield f"{before}{name}"
        yield from command_words(group.typer_instance, f"{before}{name} ")


def called_with(function: str, *folders: str) -> Iterator[list[Any]]:
    """The constant arguments of every call of a function in the code."""
    for module in modules(*folders):
        for node in module.nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == function:
                yield [argument.value for argument in node.args if isinstance(argument, ast.Constant)]


def declared_codes() -> Iterator[str]:
    """The codes that classes of the code declare, with and without a type."""
    for module in modules("spark_jobs"):
        for node in module.tree.body:
            for statement in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
                    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                    if [ast.unparse(target) for target in targets] == ["code"]:
                        yield str(statement.value.value)


def subclasses(error: type[TidemarkError]) -> Iterator[type[TidemarkError]]:
    for below in error.__subclasses__():
        yield below
        yield from subclasses(below)


def schema_keys(schema: Any) -> Iterator[str]:
    """Every key of a source file that a part of the schema names."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for inner in schema.values():
            yield from schema_keys(inner)
    if isinstance(schema, list):
        for inner in schema:
            yield from schema_keys(inner)


def test_every_command_has_a_section() -> None:
    words = list(command_words(build_app()))
    assert len(words) > 50
    headings = re.findall(r"^### `tidemark (.+?)` ", reference()["commands.md"], re.M)
    assert sorted(headings) == sorted(words)


def test_every_option_is_listed() -> None:
    options = {
        name for given in called_with("Option", "spark_jobs/cli") for name in given if str(name).startswith("--")
    }
    assert len(options) > 40
    assert {name for name in options if f"`{name.partition('/')[0]}`" not in reference()["commands.md"]} == set()


def test_every_setting_is_listed_with_its_meaning() -> None:
    rows = re.findall(r"^\| `(TIDEMARK_\w+)`\S+ \| (.+?) \| (.+?) \| (.+?) \|$", reference()["settings.md"], re.M)
    listed = [(variable, key) for variable, key, *_ in rows]
    keys = {knob: "not in the file" if knob in SECRETS else f"`{knob}`" for knob in Settings.model_fields}
    assert sorted(listed) == sorted((f"TIDEMARK_{knob.upper()}", key) for knob, key in keys.items())


def test_every_required_setting_of_a_profile_is_in_the_table_of_profiles() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+? \| required \|$", reference()["settings.md"], re.M)
    assert {*rows} == {*REQUIRED["cluster"]}


def test_every_error_code_has_a_section() -> None:
    codes = set(declared_codes())
    assert len(codes) > 120
    sections = set(re.findall(r"^## `(\w+)` ", reference()["errors.md"], re.M))
    assert sections == codes
    # of those that are imported by now
    assert {error.code for error in subclasses(TidemarkError) if error.__module__.startswith("spark_jobs")} <= sections


def test_every_rule_of_quarantine_is_listed() -> None:
    rows = set(re.findall(r"^\| `(\w+)`\{#", reference()["rejections.md"], re.M))
    assert {*RULES[1:], *FILE_RULES} == rows - set(OF_SQL) - set(limits_of_readers())


def test_every_refusal_of_sql_is_listed() -> None:
    guard = "".join(file.read_text() for file in (ROOT / "spark_jobs" / "jvm" / "scala").rglob("*.scala"))
    limits = set(re.findall(r'lazy val \w+: Limit = of\("(\w+)"', guard))
    assert len(limits) > 4
    assert set(limits_of_readers()) == {f"limit_{name}" for name in limits}
    assert set(re.findall(r's"(\w+): expected', guard)) == set(OF_SQL)


def test_every_key_of_a_source_file_is_listed() -> None:
    rows = re.findall(r"^\| `(\w+)`\{#(\S+)\} \|", reference()["source-file.md"], re.M)
    assert {key for key, _ in rows} == set(schema_keys(json_schema()))
    definitions = [d for d in json_schema()["$defs"].values() if any(schema_keys(d))]
    of_parts = [part.schema for part in parts()]
    assert [d["title"] for d in definitions if d not in of_parts] == []


def test_every_key_has_a_meaning() -> None:
    assert re.findall(r"^\| `(\w+)`\{#\S+\} \|.*\|  \|$", reference()["source-file.md"], re.M) == []


def test_every_table_and_view_has_a_section() -> None:
    described = {tuple(given[:2]) for given in called_with("Table", "spark_jobs/storage") if len(given) > 2}
    assert len(described) > 15
    assert [t for t in described if f"### `{'.'.join(t)}`" not in reference()["tables.md"]] == []
    views = {tuple(given[:2]) for given in called_with("create_view", "spark_jobs/storage/names") if len(given) > 1}
    named = {view for view in views if view[0] in ("bronze", "silver", "gold", "trace")}
    assert len(named) > 5
    assert [v for v in named if f"### `{'.'.join(v)}`" not in reference()["views.md"]] == []


def test_every_column_of_a_view_has_a_type() -> None:
    assert re.findall(r"^\| `(\w+)` \|  \|", reference()["views.md"], re.M) == []


def test_every_decision_is_in_the_index() -> None:
    files = {file.name for file in (ROOT / "spark_jobs" / "decisions").glob("*.md")}
    assert set(links(reference()["decisions/index.md"])) == files


def test_no_page_names_this_machine() -> None:
    assert [path for path, text in reference().items() if str(ROOT) in text] == []


def test_every_link_leads_somewhere() -> None:
    files = [file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*") if file.is_file() and file.suffix != ".md"]
    assert broken_links(all_pages(), files) == []


def test_no_page_loads_from_another_host() -> None:
    loads = re.compile(r"!\[[^\]]*\]\(\s*https?:|<(?:img|script|link|iframe)\b[^>]*https?:", re.IGNORECASE)
    assert [path for path, text in all_pages().items() if loads.search(text)] == []


def test_every_page_has_a_place_in_the_navigation() -> None:
    def entries(nav: Any) -> Iterator[str]:
        if isinstance(nav, str):
            yield nav
        else:
            for inner in nav.values() if isinstance(nav, dict) else nav:
                yield from entries(inner)

    nav = list(entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    placed = {page for entry in nav for page in matching_pages(DOCS, entry)}
    assert {page for page in all_pages() if not page.startswith("reference/")} <= placed
    fixed = {entry.removeprefix("reference/") for entry in nav if entry.startswith("reference/") and "*" not in entry}
    assert fixed == {page for page in reference() if not re.match(r"decisions/\d", page)}


@pytest.mark.parametrize(
    "target", ["other.md", "#heading-two", "other.md#own", "other.md#by-hand", "other.md#code-run_all", "a.png"]
)
def test_a_link_that_leads_somewhere_passes(target: str) -> None:
    page = f"# Page\n\n## Heading, two!\n\n[a]({target}) [b](https://example.org) `[c](nowhere.md)`\n"
    other = '# Other {#own}\n\n<a id="by-hand"></a>\n\n## Code: `run_all`\n\n```\n[d](nowhere.md)\n```\n'
    assert broken_links({"page.md": page, "other.md": other}, ["a.png"]) == []


@pytest.mark.parametrize("target", ["nowhere.md", "#nothing", "other.md#nothing", "../other.md", "a.png"])
def test_a_link_that_leads_nowhere_is_reported(target: str) -> None:
    pages = {"page.md": f"# Page\n\n[a]({target})\n", "other.md": "# Other\n"}
    assert broken_links(pages) == [f"page.md: {target}"]


def test_equal_headings_have_anchors_of_their_own() -> None:
    assert page_anchors("# A\n\n## B\n\n## B\n\n```\n# C\n```\n") == {"a", "b", "b_1"}


def test_every_file_that_the_guide_for_contributors_names_is_there() -> None:
    named = re.findall(r"`((?:[\w-]+/)+[\w-]+(?:\.\w+)?)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 20
    places = [ROOT, ROOT / "spark_jobs", ROOT / "spark_jobs/engine"]
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_policies_kinds_of_checks_and_aggregates_are_in_the_pages_about_them() -> None:
    assert {*get_args(PolicyName)} == POLICIES.keys()
    checks = {each["properties"]["kind"]["const"] for each in _schemas_with("kind", "treatment")}
    named = {
        "howto/late-data.md": POLICIES.keys(),
        "howto/checks.md": checks,
        "howto/early-results.md": EARLY_TRIGGERS.keys(),
        "reference/source-files.md": AGGREGATES.keys(),
    }
    assert len(checks) > 10
    for page, names in named.items():
        text = all_pages()[page]
        assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == [], page


def _schemas_with(*keys: str) -> Iterator[Any]:
    """The parts of a source file that have these keys."""
    yield from (part for part in json_schema()["$defs"].values() if {*keys} <= part.get("properties", {}).keys())
