"""The README's way from a CSV file to an answer, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.installations import CHECKOUT, TIDEMARK, Installation

pytestmark = [pytest.mark.server, pytest.mark.turns]

README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## Your own CSV in five commands")[2].partition("\n## ")[0]


def shown_commands() -> list[str]:
    """The command lines of the section, without the set-up."""
    blocks = re.findall(r"```console\n(.*?)```", SECTION, flags=re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith("make setup")]


def test_a_csv_file_of_ones_own_is_tried_run_and_queried(tmp_path: Path) -> None:
    for name, text in re.findall(r'```text title="(.*?)"\n(.*?)```', SECTION, flags=re.DOTALL):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    commands = shown_commands()
    assert [command.split()[1] for command in commands if command.startswith("tidemark")] == [
        *("try", "up", "run", "sql", "down"),
    ]
    installation = Installation(tmp_path / "home")
    # sources and landing folder are those that the page exports
    chosen = {"TIDEMARK_SOURCES", "TIDEMARK_LANDING"}
    environment = {name: text for name, text in installation.environment.items() if name not in chosen}
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
            cwd=tmp_path,
            env={**environment, "PATH": f"{TIDEMARK.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    finally:
        installation.run(str(TIDEMARK), "down")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 → 3" in done.stdout, "the late row restated its window"
    assert re.search(r"north +2024-03-01T09:00:00Z .* 3 ", done.stdout), done.stdout
