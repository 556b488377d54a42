"""The text of a source file under another name: only the line that names the source changes."""

from __future__ import annotations

import re
from pathlib import Path

from spark_jobs.sources.load import parse_source
from spark_jobs.sources.problems import Problem, SourceFileError
from spark_jobs.sources.source import Source

_NAMED = r"""^(["']?source["']?[ \t]*:[ \t]*)(["']?){name}\2(?=[ \t]*(?:#|$))"""


def renamed_source(file: Path, new: str) -> tuple[str, Source]:
    """The text of a source's file with `new` as the source's name, and the source that this text describes.

    Raises:
        SourceFileError: the new name can't be a source's name, or there is not exactly one line with only the old name.
    """
    old = file.stem
    text = file.read_text(encoding="utf-8-sig")
    named = re.compile(_NAMED.format(name=re.escape(old)), re.MULTILINE)
    renamed, count = named.subn(lambda line: f"{line[1]}{line[2]}{new}{line[2]}", text)
    if count != 1:
        problem = Problem("source", f"one line `source: {old}`, to be renamed", f"{count} of them")
        raise SourceFileError(file.name, [problem])
    source = parse_source(renamed, file=f"{new}{file.suffix}")
    before = parse_source(text, file=file.name)
    if source.model_copy(update={"source": old}) != before:
        raise SourceFileError(file.name, [Problem("source", "a line that says nothing but the name", "more")])
    return renamed, source
