"""Docstrings of the classes that read source files: the text about the whole, and the text about each key.

Such a text has the form "`key`: its meaning. `other`, `third`: their meaning." A meaning ends where the next key
begins, at the end of a paragraph, or where a line was broken although the next word had room on it.
"""

from __future__ import annotations

import itertools
import re

LINE_WIDTH = 116
"""The characters of a line of a docstring in a class, without its indentation."""
_KEYS = re.compile(r"(?:^|(?<=[.)] ))((?:`?\w+`?(?:, | and ))*`?\w+`?): ")


def described_keys(docstring: str, keys: set[str]) -> tuple[str, dict[str, str]]:
    """The text about the whole, in paragraphs, and the meaning of each key that the docstring describes."""
    whole: list[str] = []
    meanings: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", docstring):
        other_texts = [_take_keys(block, keys, meanings) for block in _blocks(paragraph)]
        whole.append(" ".join(filter(None, other_texts)))
    return "\n\n".join(filter(None, whole)), meanings


def _blocks(paragraph: str) -> list[str]:
    """The paragraph, cut where a line ends early."""
    lines = paragraph.split("\n")
    blocks = [lines[0]]
    for before, line in itertools.pairwise(lines):
        ends_early = before.endswith(".") and len(before) + 1 + len(line.split(" ")[0]) <= LINE_WIDTH
        if ends_early:
            blocks.append(line)
        else:
            blocks[-1] += f" {line}"
    return blocks


def _take_keys(block: str, keys: set[str], meanings: dict[str, str]) -> str:
    """The block up to its first key; the meanings of its keys are put into `meanings`."""
    starts = [match for match in _KEYS.finditer(block) if _names(match[1]) <= keys]
    if not starts:
        return block
    ends = [match.start() for match in starts[1:]] + [len(block)]
    for match, end in zip(starts, ends, strict=True):
        meanings |= dict.fromkeys(_names(match[1]), block[match.end() : end].strip())
    return block[: starts[0].start()].strip()


def _names(listed: str) -> set[str]:
    return set(re.findall(r"\w+", listed.replace(" and ", ", ")))
