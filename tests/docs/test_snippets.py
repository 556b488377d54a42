"""The snippets of `docs/`: the loader of source files accepts those in YAML, and the app has the commands of consoles.

A block is tested by its language and title:

- ` ```yaml title="sources/orders.yml" ` is a whole source file;
- ` ```yaml title="in sources/orders.yml" ` is a part of that file. Its keys are added to those of the nearest whole
  file above it on the page, or else of the example that the page names in no block, `EXAMPLE`;
- ` ```console ` has command lines after `$ `; of each `tidemark …` the command, options and number of arguments are
  checked;
- ` ```python ` compiles;
- ` ```toml title="tidemark.toml" ` has settings.

A block of one of these languages that can't be tested has the comment `<!-- not tested: REASON -->` in the line before.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from spark_jobs.cli.app import build_app
from spark_jobs.config import Settings, load_settings
from spark_jobs.sources import SourceFileError, load_source

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<language>[a-z]+)(?P<info>.*)")
TITLE = re.compile(r'title="(?P<part>in )?sources/(?P<name>\w+)\.yml"')
UNTESTED = re.compile(r"\s*<!-- not tested: .+ -->\s*")
ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=.*")
SEPARATORS = {"&&", "||", "|", ";", "&"}
REDIRECTIONS = {">", ">>", "<"}
SYNOPSIS = "[OPTIONS]"
"""A word of command lines that show the usage of a command; of those the command alone is checked."""
EXAMPLE = """
source: {name}
start: 2024-03-01
landing: {{path: "{name}/{{date}}/*", format: csv}}
columns: {{id: int, meter: string, at: timestamp, load: float}}
timelines: [at]
event_time: at
entity: meter
delta_id: id
windows:
  hourly: {{kind: tumbling, size: 1 hour, key: meter, aggregates: {{n: count(), mean: avg(load)}}}}
"""
"""The source file that a part belongs to if its page has no whole file above it."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, the rest of its first line, its text, and the line above it."""

    where: str
    language: str
    info: str
    text: str
    above: str

    @property
    def is_tested(self) -> bool:
        """True if no comment above the block says why it can't be tested."""
        return not UNTESTED.fullmatch(self.above)


def read_blocks(page: str, where: str) -> Iterator[Block]:
    """The fenced blocks of a page that name a language, in their order."""
    lines = page.splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.fullmatch(lines[number])
        if fence is None:
            number += 1
            continue
        end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == fence["ticks"])
        text = "\n".join(line.removeprefix(fence["indent"]) for line in lines[number + 1 : end])
        above = lines[number - 1] if number else ""
        yield Block(f"{where}:{number + 1}", fence["language"], fence["info"].strip(), f"{text}\n", above)
        number = end + 1


def read_pages(*languages: str) -> dict[str, list[Block]]:
    """The blocks in these languages by the path of their page; pages without one are left out."""
    pages = {}
    # `make docs` writes the reference from the code
    for path in sorted(each for each in DOCS.rglob("*.md") if each.relative_to(DOCS).parts[0] != "reference"):
        name = path.relative_to(DOCS).as_posix()
        found = [block for block in read_blocks(path.read_text(encoding="utf-8"), name) if block.language in languages]
        if found:
            pages[name] = found
    return pages


def join(whole: Any, part: Any) -> Any:
    """A document with the keys of a part added; of equal keys that are no mappings the part's value counts."""
    if not (isinstance(whole, dict) and isinstance(part, dict)):
        return part
    return {**whole, **{key: join(whole.get(key), value) for key, value in part.items()}}


def find_problems(blocks: list[Block], folder: Path) -> list[str]:
    """The problems of the source files in the blocks of one page."""
    problems: list[str] = []
    wholes: dict[str, Any] = {}
    for block in (block for block in blocks if block.is_tested):
        title = TITLE.search(block.info)
        if title is None:
            problems.append(f"{block.where}: neither a title of a source file nor a comment `not tested`")
            continue
        name, document = title["name"], yaml.safe_load(block.text)
        text = block.text
        if title["part"]:
            whole = wholes.get(name) or yaml.safe_load(EXAMPLE.format(name=name))
            text = yaml.safe_dump(join(copy.deepcopy(whole), document), sort_keys=False)
        else:
            wholes[name] = document
        path = folder / f"{name}.yml"
        path.write_text(text, encoding="utf-8")
        try:
            load_source(path)
        except SourceFileError as error:
            problems.append(f"{block.where}: {error}")
    return problems


@cache
def find_root() -> Any:
    """The root command of the app."""
    return typer.main.get_command(build_app())


def read_command_lines(text: str) -> Iterator[str]:
    """The command lines of a console: each begins after `$ `, and goes on after a backslash at its end."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            while command.endswith("\\"):
                command = command.removesuffix("\\") + next(lines)
            yield command


def split_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a command line, without comments, redirections and variables of its own."""
    inner = re.findall(r"\$\(([^()]*)\)", line)
    for text in [re.sub(r"\$\([^()]*\)", "RESULT", line), *inner]:
        words: list[str] = []
        is_place = False
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        for word in [*lexer, ";"]:
            if word in SEPARATORS:
                while words and ASSIGNMENT.fullmatch(words[0]):
                    words.pop(0)
                if words:
                    yield words
                words = []
            elif is_place or word in REDIRECTIONS:
                is_place = word in REDIRECTIONS
            else:
                words.append(word)


def find_fault(words: list[str]) -> str | None:
    """The fault of the words after `tidemark`; None if the app has such a command, with these options."""
    command = find_root()
    name = "tidemark"
    words = list(words)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        known = command.commands
        if words[0] not in known and hasattr(command, "DEFAULT"):
            words.insert(0, command.DEFAULT)
        if words[0] not in known:
            return f"{name} has no command {words[0]!r}"
        name, command = f"{name} {words[0]}", known[words.pop(0)]
    if "ignore_unknown_options" in command.context_settings or SYNOPSIS in words:
        return None
    context = command.context_class(command, info_name=name)
    try:
        given, left, _ = command.make_parser(context).parse_args(words)
    except Exception as error:
        return f"{name}: {error}"
    if left:
        return f"{name} takes no {left[0]!r}"
    lacking = [p.name for p in command.params if p.required and given.get(p.name) in (None, ())]
    return f"{name} lacks {', '.join(lacking)}" if lacking and "help" not in given else None


def find_faults(block: Block) -> list[str]:
    """The faults of the command lines of `tidemark` in a block of a console."""
    faults = []
    for line in read_command_lines(block.text):
        for words in split_commands(line):
            if Path(words[0]).name == "tidemark":
                fault = find_fault(words[1:])
                faults += [f"{block.where}: {fault}"] if fault else []
    return faults


@pytest.mark.parametrize("page", read_pages("yaml"))
def test_source_files_are_right(page: str, tmp_path: Path) -> None:
    assert find_problems(read_pages("yaml")[page], tmp_path) == []


@pytest.mark.parametrize("page", read_pages("console"))
def test_commands_are_there(page: str) -> None:
    blocks = [block for block in read_pages("console")[page] if block.is_tested]
    assert [fault for block in blocks for fault in find_faults(block)] == []


@pytest.mark.parametrize("page", read_pages("python"))
def test_programs_compile(page: str) -> None:
    for block in read_pages("python")[page]:
        if block.is_tested:
            compile(block.text, block.where, "exec")


@pytest.mark.parametrize("page", read_pages("toml"))
def test_settings_files_are_right(
    page: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in read_pages("toml")[page]:
        assert block.info == 'title="tidemark.toml"'
        # the folder of secrets is not on this machine
        text = block.text.replace('secrets = "/run/secrets"', 'secrets = "."')
        (tmp_path / "tidemark.toml").write_text(text, encoding="utf-8")
        monkeypatch.setenv("TIDEMARK_CONFIG", str(tmp_path / "tidemark.toml"))
        assert load_settings().model_fields_set


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("tidemark run meters --from 2024-03-01  # a day", None),
        ("export A=1 && B=2 .venv/bin/tidemark quarantine replay meters --rule bad_int | less", None),
        ('eval "$(tidemark env)"', None),
        ("tidemark airflow dags list --output json", None),
        ("tidemark --help", None),
        ("tidemark env drop [OPTIONS] NAME", None),
        ("tidemark schema > source-file.schema.json", None),
        ("tidemark rum meters", "tidemark has no command 'rum'"),
        ("tidemark quarantine repeat meters", "tidemark quarantine has no command 'repeat'"),
        ("tidemark run meters --form 2024-03-01", "tidemark run: No such option: --form"),
        ("tidemark run meters weather", "tidemark run takes no 'weather'"),
        ("cd home; tidemark run", "tidemark run lacks source"),
        ("tidemark plan meters", "tidemark plan lacks first"),
    ],
)
def test_a_wrong_command_is_found(line: str, fault: str | None) -> None:
    (found,) = [find_faults(Block("page:1", "console", "", f"$ {line}\nprinted\n", ""))]
    assert [text.partition(" (")[0] for text in found] == ([f"page:1: {fault}"] if fault else [])


PAGE = """
<!-- not tested: a part of another file -->
```yaml
no: {
```

```yaml title="in sources/meters.yml"
entity: sensor
```

1. An item:

    ```yaml title="sources/meters.yml"
    source: meters
    ```
"""


def test_wrong_source_files_are_found(tmp_path: Path) -> None:
    problems = find_problems(list(read_blocks(PAGE, "page.md")), tmp_path)
    assert [problem.partition(" ")[0] for problem in problems] == ["page.md:7:", "page.md:13:"]
    assert "sensor" in problems[0]
