"""A version of the code that the lake server runs.

Spark reuses its Python workers, and the workers keep the modules that they have imported. So after an edit the next
query still runs the old code, without a warning. Therefore the server remembers the version that it was started with,
and `tidemark up` restarts the server when the files have another version.
"""

from __future__ import annotations

import hashlib
import sys
from importlib import metadata
from pathlib import Path

import spark_jobs

PACKAGES = ("spark_jobs", "expectations")


def code_version(root: Path | None = None) -> str:
    """A hash of the names and contents of all Python and Scala files of the packages under `root`.

    Returns 16 hexadecimal digits; `root` None is the folder that has `spark_jobs`.
    """
    root = root or Path(spark_jobs.__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted(file for kind in ("*.py", "*.scala") for file in (root / package).rglob(kind)):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


WORKER_VERSIONS = "TIDEMARK_WORKER_VERSIONS"
"""The environment variable by which Python's workers on other machines learn the versions that they must have."""
_OF_WORKERS = ("deltalake", "numba", "numpy", "pandas", "pyarrow", "pyspark")


def worker_versions() -> dict[str, str]:
    """The versions of this process's Python, of the packages that its tasks use, and of Tidemark's code."""
    packages = {name: metadata.version(name) for name in _OF_WORKERS}
    return {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", **packages, "tidemark": code_version()}
