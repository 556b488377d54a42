"""The bill of materials: the Python packages, as `cyclonedx-py` lists them, and the pinned jars.

    python -m spark_jobs.server.sbom PACKAGES.json SBOM.json        # what `make sbom` calls

The jars in pyspark's package are not listed one by one: they count as part of pyspark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spark_jobs.jvm.jars import DELTA, OPTIONAL


def with_jars(bill: dict[str, Any]) -> dict[str, Any]:
    """A bill of materials in CycloneDX's JSON, with the jars of all locks added to its components."""
    jars = [
        {
            "type": "library",
            "bom-ref": (purl := f"pkg:maven/{jar.organisation}/{jar.name}@{jar.revision}"),
            "group": jar.organisation,
            "name": jar.name,
            "version": jar.revision,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
        }
        for jar in [jar for jars in (DELTA, *OPTIONAL.values()) for jar in jars.pinned_jars()]
    ]
    return {**bill, "components": [*bill["components"], *jars]}


if __name__ == "__main__":
    packages, out = map(Path, sys.argv[1:])
    out.write_text(json.dumps(with_jars(json.loads(packages.read_text())), indent=2) + "\n")
