"""The audit of packages: which of pip-audit's findings have a fix. Those end `make audit` with an error.

    python -m spark_jobs.server.audit FINDINGS.json [--if-reachable]        # what `make audit` calls

pip-audit knows no severity, so every finding with a fix counts; one without is told, and can't be acted upon.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def findings(report: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Vulnerabilities in pip-audit's JSON report, those that have a fix and those that have none, a line each.

    Raises:
        ValueError: packages were skipped, so that nothing is known of them.
    """
    skipped = [package["name"] for package in report["dependencies"] if "skip_reason" in package]
    if skipped:
        raise ValueError(
            f"expected every package to be audited, found {len(skipped)} skipped: {', '.join(skipped[:5])}"
        )
    lines: tuple[list[str], list[str]] = ([], [])
    for package in report["dependencies"]:
        for vulnerability in package["vulns"]:
            fixes = ", ".join(vulnerability["fix_versions"])
            names = ", ".join([vulnerability["id"], *vulnerability.get("aliases", [])])
            line = f"{package['name']} {package['version']}: {names}"
            lines[not fixes].append(f"{line}; fixed in {fixes}" if fixes else f"{line}; no fix yet")
    return lines


def verdict(path: Path, *, if_reachable: bool) -> tuple[str, bool]:
    """What to print of pip-audit's report at `path`, and whether it lets a build pass. Where nothing is known of the
    packages, since no advisory could be read, a build passes only `if_reachable`: if it asks for no more than that."""
    try:
        fixable, others = findings(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError) as error:
        reason = error if str(error).startswith("expected") else "the advisories could not be read"
        unknown = f"audit: {reason}; nothing is known of the packages: check the network and the package index"
        return unknown, if_reachable
    lines = [*fixable, *others]
    if fixable:
        lines.append(f"audit: {len(fixable)} findings have a fix: raise the versions in requirements.lock")
    return "\n".join(lines or ["audit: no known vulnerability"]), not fixable


if __name__ == "__main__":
    text, passes = verdict(Path(sys.argv[1]), if_reachable="--if-reachable" in sys.argv[2:])
    sys.stdout.write(f"{text}\n")
    sys.exit(not passes)
