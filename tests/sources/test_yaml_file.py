"""YAML is read the same by libyaml's parser and by the one that words errors."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.config import CHECKOUT
from spark_jobs.sources import yaml_file
from spark_jobs.sources.problems import Problem
from spark_jobs.sources.yaml_file import read_yaml
from tests.jobs.harness import SOURCE

FILES = sorted(path for folder in ("dags/sources", "examples") for path in (CHECKOUT / folder).rglob("*.yml"))
SIGNS = [*"&*'\":#\t\n|>{}[],%!\\é~", "- ", "? "]
VALUES = ["2024-02-30", "2024-01-01T00:00:00Z", "0x1f", "1_000", "1e3", ".inf", "yes", "null", "<<: {a: 1}", "a: 1"]


OF_LIBYAML = re.compile(r"[|>][-+0-9]*#")
"""The one text that libyaml takes and the other parser does not: a comment without a space before it, after the
beginning of a block of text."""


def read_plainly(text: str) -> tuple[Any, list[Problem]] | None:
    """The document and its problems by the parser in Python; None if it is no YAML."""
    try:
        return yaml_file._read(yaml_file._Loader(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def same(left: Any, right: Any) -> bool:
    """True if the documents are equal, a float that is no number included."""
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    if isinstance(left, dict) and isinstance(right, dict):
        return [*left] == [*right] and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_source_files_are_read_by_libyaml_as_by_the_parser_that_words_errors(path: Path) -> None:
    text = path.read_text()
    document, problems = yaml_file._read(yaml_file._QuickLoader(text))
    assert same(document, read_plainly(text)[0]) and problems == []  # type: ignore[index]
    assert read_yaml(text) == (document, problems)


@given(st.data())
def test_changed_files_are_read_the_same(data: st.DataObject) -> None:
    text = SOURCE
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 5))
        piece = data.draw(st.sampled_from([*SIGNS, *VALUES, ""]))
        text = text[:at] + piece + text[at + cut :]
    check_same(text)


@given(st.text(alphabet="ab1:-{}[],'\"|>#&*!%? \n\t~é", max_size=40))
@example("a: 1\na: 2")
@example("1: a\n[b]: c")
@example("a: &x [1]\nb: *x")
@example("a: *x")
@example("d: 2024-02-30")
@example("- <<: {a: 1}\n  b: 2")
@example("a: !!python/object:os.system x")
@example("---\na\n---\nb")
@example("|#")
def test_short_texts_are_read_the_same(text: str) -> None:
    check_same(text)


def check_same(text: str) -> None:
    """Fail unless a text that is YAML to the plain parser is read as it reads it, and another one is refused."""
    plain, read = read_plainly(text), read_yaml(text)
    if plain is None and OF_LIBYAML.search(text):
        assert read[0] is not None or read[1]
    elif plain is None:
        assert read[0] is None and "valid YAML" in read[1][0].expected, (text, read)
    else:
        assert same(read[0], plain[0]), (text, read, plain)
        assert read[1] == plain[1], text
