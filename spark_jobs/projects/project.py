"""A new project: a folder that has all that a team writes, and begins as one of the examples."""

from __future__ import annotations

import shutil
from pathlib import Path

from spark_jobs.errors import ParameterError
from spark_jobs.projects.examples import Example

TEMPLATE = Path(__file__).parent / "template"
_NAMES = {"gitignore": ".gitignore"}
"""Files that have another name in a project: a `.gitignore` would hide files of Tidemark's own repository."""
_LEFT = (".", "__pycache__")


def write_project(folder: Path, example: Example) -> list[Path]:
    """Write a project into a folder that is empty or not there: the example, a README, settings and a compose file. The
    written paths are returned, relative to the folder.

    Raises:
        ParameterError: the folder is not empty, or no folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ParameterError(
            expected="a folder that is empty or not there yet",
            found=f"{folder}, which {'has files' if folder.is_dir() else 'is a file'}",
            consequence="nothing was written",
            next_step="name another folder",
        )
    originals = {path.relative_to(example.folder): path for path in example.folder.rglob("*") if path.is_file()}
    # files that programs leave beside a notebook
    originals = {path: original for path, original in originals.items() if not str(path).startswith(_LEFT)}
    for path, original in originals.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(original, folder / path)
    written = [*originals]
    marks = {
        "@PROJECT@": folder.resolve().name,
        "@EXAMPLE@": example.name,
        "@SOURCE@": example.source,
        "@FIRST@": example.drops[0],
        "@LAST@": example.drops[-1],
        "@MART@": next(path.stem for path in (example.folder / "dbt" / "models").glob("*.sql")),
    }
    for template in sorted(TEMPLATE.iterdir()):
        text = template.read_text(encoding="utf-8")
        for mark, value in marks.items():
            text = text.replace(mark, value)
        written.append(Path(_NAMES.get(template.name, template.name)))
        (folder / written[-1]).write_text(text, encoding="utf-8")
    return sorted(written)
