"""The hooks of pre-commit run programs of the environment, on files that there are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.architecture.source_tree import ROOT

HOOKS = [
    hook for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"] for hook in repo["hooks"]
]


def test_each_hook_runs_a_program_of_the_environment() -> None:
    programs = [Path(hook["entry"].split()[0]) for hook in HOOKS]
    assert {program.parent for program in programs} == {Path(".venv/bin")}
    # the environment that runs this test may have another place
    assert [program for program in programs if not Path(sys.executable).with_name(program.name).exists()] == []


def test_each_hook_is_about_files_that_there_are() -> None:
    answer = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    patterns = [hook["files"] for hook in HOOKS if "files" in hook]
    assert patterns
    assert [p for p in patterns if not any(re.search(p, file) for file in answer.stdout.splitlines())] == []
