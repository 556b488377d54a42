"""Hints in the report of a run or plan about files that look misplaced."""

from __future__ import annotations

from typing import Any


def hints(land: dict[str, Any], source: str) -> list[str]:
    """Sentences about files that are gone, copied, or in a folder beside, by `land`, the summary of the stage land."""
    sentences = []
    gone, copied, beside = (land.get(name) or [] for name in ("gone_files", "copied_files", "files_beside"))
    if gone:
        sentences.append(
            f"{_files(len(gone))} that landed {'is' if len(gone) == 1 else 'are'} not there any more: {gone[0]}"
            f"{_more(gone)}. The rows stay; `tidemark retract {source} --file {gone[0]}` takes them back"
        )
    if copied:
        new, landed = copied[0]
        sentences.append(
            f"{_files(len(copied))} with the bytes of one that landed in another drop: {new} is {landed}"
            f"{_more(copied)}."
            " Without a `delta_id` the rows count twice"
        )
    sentences += [f"did you mean these? {each}" for each in beside]
    return sentences


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _more(listed: list[Any]) -> str:
    return f" and {len(listed) - 1} more" if len(listed) > 1 else ""
