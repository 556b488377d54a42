"""The audit of packages: findings of pip-audit that have a fix end `make audit` with an error.

    python -m spark_jobs.server.audit FINDINGS.json [--if-reachable]        # what `make audit` calls

pip-audit has no severities, so every finding with a fix counts. A finding without a fix is only printed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def findings(report: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The vulnerabilities in pip-audit's JSON report, one line each: those with a fix, and those without.

    Raises:
        ValueError: pip-audit skipped packages, so their vulnerabilities are unknown.
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
    """The text to print about pip-audit's report at `path`, and True if a build passes with this report.

    If the report is missing or incomplete, since advisories could not be read, a build passes only if `if_reachable`.
    """
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
