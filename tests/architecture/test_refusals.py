"""Every refusal of the trace, of corrections and of what people call says what to do next."""

from __future__ import annotations

import ast

from tests.architecture.source_tree import ROOT

PACKAGE = ROOT / "spark_jobs"

SPOKEN_BY = ("cli", "corrections", "jobs", "kernels/arrangement", "kernels/corrections", "restatement", "trace")


def test_every_refusal_says_what_to_do_next() -> None:
    silent = []
    n_refusals = 0
    for folder in SPOKEN_BY:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                told = {keyword.arg for keyword in node.keywords}
                if {"expected", "found"} <= told:
                    n_refusals += 1
                    if "next_step" not in told:
                        silent.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert n_refusals > 50
    assert silent == []
