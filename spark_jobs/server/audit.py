"""The audit of packages: which of pip-audit's findings have a fix. Those end `make audit` with an error.

    python -m spark_jobs.server.audit FINDINGS.json        # what `make audit` calls

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


if __name__ == "__main__":
    try:
        fixable, others = findings(json.loads(Path(sys.argv[1]).read_text()))
    except ValueError as error:
        sys.exit(f"audit: {error}; nothing is known of these: check the network and the package index")
    sys.stdout.write("".join(f"{line}\n" for line in [*fixable, *others]))
    sys.exit(f"audit: {len(fixable)} findings have a fix: raise the versions in requirements.lock" if fixable else 0)
