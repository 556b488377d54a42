"""Build the marts of one source with dbt, in this process, against the lake server's SQL port.

dbt keeps its parsed project and its logs under the data directory, so a warm build parses nothing and a checkout stays
clean. Importing dbt takes some seconds: `preload` does it while Spark is busy.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.publish.changes import Changes
from spark_jobs.publish.project import PROJECT, Project
from spark_jobs.server.logins import login
from spark_jobs.sources import Source

_GOOD = {"success", "pass", "warn", "skipped"}


@dataclass(frozen=True, slots=True)
class MartTest:
    """What came of one of dbt's tests: `status` as dbt says it, the rows that break it, dbt's severity (error or warn),
    the mart that it is about, all marts that it reads, and the query that gives those rows."""

    name: str
    mart: str
    reads: frozenset[str]
    status: str
    failures: int | None
    severity: str
    message: str
    query: str | None

    @classmethod
    def of(cls, result: Any) -> MartTest:
        """Of a result of dbt."""
        node = result.node
        mart = str(getattr(node, "attached_node", None) or "").rpartition(".")[2]
        reads = frozenset(id_.rpartition(".")[2] for id_ in node.depends_on_nodes if id_.startswith("model."))
        severity = str(getattr(node.config, "severity", "error")).lower()
        query = getattr(node, "compiled_code", None)
        message = " ".join(str(result.message or result.status).split())
        return cls(node.name, mart, reads, str(result.status), result.failures, severity, message, query)


class MartsFailed(TidemarkError):
    """dbt could not build or test a source's marts. Facts: `source`, `failed` (node -> dbt's own message), `log`."""

    code = "marts_failed"
    source: str
    failed: dict[str, str]
    log: str


@dataclass(frozen=True, slots=True)
class MartsResult:
    """What dbt did.

    status: of each model and test, by name. passed: the marts that were built and whose tests passed, or warn.
    failed: what went wrong, in dbt's words, by model or test; a mart may have passed although another failed.
    """

    source: str
    status: Mapping[str, str]
    passed: list[str]
    failed: Mapping[str, str]
    tests: Sequence[MartTest]
    seconds: float


@dataclass(frozen=True, slots=True)
class StandingMart:
    """What stands of a mart in `marts_staging`: its columns, each with its type; the publication and the model that it
    reflects; and whether it is what people see. One that is not may hold anything, and is written whole."""

    columns: Sequence[str]
    published: int | None
    model: str | None
    shown: bool


def preload() -> None:
    """Import dbt."""
    import dbt.cli.main  # noqa: F401


def build_marts(
    settings: Settings,
    project: Project,
    source: Source,
    *,
    published_us: int,
    standing: Mapping[str, StandingMart],
    changes: Changes,
    compiled: bool,
) -> MartsResult:
    """Bring the marts of `source` in `marts_staging` up to its publication and test them; a source without
    marts builds nothing.

    `published_us` is the publication in force, for the marts' commits to name, `standing` the marts that stand, by
    name, and `changes` what changed since. `compiled`: Spark makes and compiles code for each statement, which pays for
    large marts alone. A failed build leaves each mart as it was or at the new publication, never
    between: run it again.
    """
    begun = time.monotonic()
    preload()
    from dbt.cli.main import dbtRunner

    arguments = ["build", "--select", *project.selected(source), *dbt_options(settings, project)]
    with dbt_environment(settings, published_us, standing, changes, compiled=compiled):
        outcome = dbtRunner().invoke(arguments)
    results: Sequence[Any] = getattr(outcome.result, "results", None) or []
    failed = {r.node.name: r.message or str(r.status) for r in results if str(r.status) not in _GOOD}
    if outcome.exception is not None:
        failed["dbt"] = str(outcome.exception)
    elif not outcome.success and not failed:
        failed["dbt"] = "no reason given"
    tests = [MartTest.of(result) for result in results if result.node.resource_type == "test"]
    refused = {mart for test in tests if test.status not in _GOOD for mart in test.reads}
    built = {r.node.name for r in results if r.node.resource_type == "model" and str(r.status) == "success"}
    status = {r.node.name: str(r.status) for r in results}
    return MartsResult(source.name, status, sorted(built - refused), failed, tests, time.monotonic() - begun)


def dbt_options(settings: Settings, project: Project, target: Path | None = None) -> list[str]:
    """dbt's options for a project; what it leaves is in `target`, which is the builds' folder by default."""
    target = target or settings.home / "dbt" / "target"
    return [
        *("--project-dir", str(project.folder), "--profiles-dir", str(PROJECT)),
        *("--target-path", str(target), "--log-path", str(_logs(settings))),
        *("--log-level", "none", "--log-level-file", "info", "--no-use-colors", "--no-version-check"),
        # what dbt would list before it builds, `macros/mart.sql` asks of each mart by itself
        *("--no-send-anonymous-usage-stats", "--no-populate-cache"),
    ]


def _logs(settings: Settings) -> Path:
    return settings.logs_dir / "dbt"


@contextmanager
def dbt_environment(
    settings: Settings,
    published_us: int,
    standing: Mapping[str, StandingMart],
    changes: Changes,
    *,
    compiled: bool,
) -> Iterator[None]:
    """The variables that the project reads, as `build_marts` has them, for the time of one command of dbt."""
    user = login(settings, "writer")
    wanted = {
        "TIDEMARK_JDBC_USER": user.user,
        "DBT_ENV_SECRET_TIDEMARK_PASSWORD": user.password,
        "TIDEMARK_TLS": str(settings.tls_keystore is not None),
        "TIDEMARK_SERVER_HOST": settings.server_host,
        "TIDEMARK_THRIFT_PORT": str(settings.thrift_port),
        "TIDEMARK_PUBLISHED_US": str(published_us),
        "TIDEMARK_MARTS": json.dumps({mart: asdict(stands) for mart, stands in standing.items()}),
        "TIDEMARK_CHANGES": json.dumps(changes),
        "TIDEMARK_COMPILED": str(compiled).lower(),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def marts_failed(settings: Settings, source: str, failed: Mapping[str, str]) -> MartsFailed:
    """The error that says which models and tests failed."""
    log = str(_logs(settings) / "dbt.log")
    lines = "".join(f"\n  - {name}: {' '.join(message.split())}" for name, message in failed.items())
    return MartsFailed(
        expected=f"dbt to build and test the marts of {source}",
        found=f"{len(failed) or 'no'} reasons why not:{lines}\n",
        consequence="silver and gold are published; marts that failed, and marts made of those, stay as they were",
        next_step=f"correct the model or the data and run the publish stage again; dbt's log is {log}",
        source=source,
        failed=dict(failed),
        log=log,
    )
