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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.publish.changes import Changes
from spark_jobs.server.logins import login
from spark_jobs.storage.table_notes import NotedTable

PROJECT = CHECKOUT / "dbt"
"""The dbt project; its `profiles.yml` is beside it."""

MARTS = "marts"
"""The database of the models, see `profiles.yml`."""
_GOOD = {"success", "pass", "warn", "skipped"}


@dataclass(frozen=True, slots=True)
class MartTest:
    """What came of one of dbt's tests: `status` as dbt says it, the rows that break it, dbt's severity (error or warn),
    the mart that it is about, and the query that gives those rows."""

    name: str
    mart: str
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
        severity = str(getattr(node.config, "severity", "error")).lower()
        query = getattr(node, "compiled_code", None)
        message = " ".join(str(result.message or result.status).split())
        return cls(node.name, mart, str(result.status), result.failures, severity, message, query)


class MartsFailed(TidemarkError):
    """dbt could not build or test a source's marts. Facts: `source`, `failed` (node -> dbt's own message), `log`.
    `tests` are what came of dbt's tests."""

    code = "marts_failed"
    source: str
    failed: dict[str, str]
    log: str
    tests: Sequence[MartTest] = ()


@dataclass(frozen=True, slots=True)
class MartsResult:
    """What dbt did: `status` of each model and test by name, the tables of the models, and how long all of it took."""

    source: str
    status: Mapping[str, str]
    marts: list[str]
    seconds: float
    tests: Sequence[MartTest] = ()


def models() -> set[str]:
    """The names of the project's models."""
    return {path.stem for path in (PROJECT / "models").rglob("*.sql")}


def preload() -> None:
    """Import dbt."""
    import dbt.cli.main  # noqa: F401


def build_marts(
    settings: Settings,
    source: str,
    *,
    published_us: int | None = None,
    standing: Mapping[str, NotedTable] | None = None,
    changes: Changes | None = None,
    compiled: bool = True,
) -> MartsResult:
    """Bring the marts of `source` (its tag) up to its publication and test them; a source without marts builds nothing.

    `published_us` is the publication in force, for the marts' commits to name, `standing` the marts that stand, by
    name, and `changes` what changed since: what is not said here the models ask of the lake, a statement each.
    `compiled`: Spark makes and compiles code for each statement, which pays for large marts alone.
    A failed build leaves each mart as it was or at the new publication, never between: run it again.

    Raises:
        MartsFailed: the project, a model or a test failed.
    """
    begun = time.monotonic()
    preload()
    from dbt.cli.main import dbtRunner

    arguments = ["build", "--select", f"tag:{source}", *_options(settings)]
    with _environment(settings, published_us, standing or {}, changes or {}, compiled=compiled):
        outcome = dbtRunner().invoke(arguments)
    results: Sequence[Any] = getattr(outcome.result, "results", None) or []
    failed = {r.node.name: r.message or str(r.status) for r in results if str(r.status) not in _GOOD}
    if outcome.exception is not None:
        failed["dbt"] = str(outcome.exception)
    tests = [MartTest.of(result) for result in results if result.node.resource_type == "test"]
    if failed or not outcome.success:
        failure = _failure(settings, source, failed)
        failure.tests = tests
        raise failure
    status = {r.node.name: str(r.status) for r in results}
    marts = sorted(r.node.alias for r in results if r.node.resource_type == "model")
    return MartsResult(source, status, marts, time.monotonic() - begun, tests)


def _options(settings: Settings) -> list[str]:
    state = settings.home / "dbt"
    return [
        *("--project-dir", str(PROJECT), "--profiles-dir", str(PROJECT)),
        *("--target-path", str(state / "target"), "--log-path", str(_logs(settings))),
        *("--log-level", "none", "--log-level-file", "info", "--no-use-colors", "--no-version-check"),
        # what dbt would list before it builds, `macros/mart.sql` asks of each mart by itself
        *("--no-send-anonymous-usage-stats", "--no-populate-cache"),
    ]


def _logs(settings: Settings) -> Path:
    return settings.logs_dir / "dbt"


@contextmanager
def _environment(
    settings: Settings,
    published_us: int | None,
    standing: Mapping[str, NotedTable],
    changes: Changes,
    *,
    compiled: bool,
) -> Iterator[None]:
    """The variables that the project reads, for the time of one build."""
    user = login(settings, "writer")
    wanted = {
        "TIDEMARK_JDBC_USER": user.user,
        "DBT_ENV_SECRET_TIDEMARK_PASSWORD": user.password,
        "TIDEMARK_TLS": str(settings.tls_keystore is not None),
        "TIDEMARK_SERVER_HOST": settings.server_host,
        "TIDEMARK_THRIFT_PORT": str(settings.thrift_port),
        "TIDEMARK_PUBLISHED_US": "" if published_us is None else str(published_us),
        "TIDEMARK_MARTS": json.dumps({mart: {"columns": t.columns, **t.note} for mart, t in standing.items()}),
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


def _failure(settings: Settings, source: str, failed: dict[str, str]) -> MartsFailed:
    log = str(_logs(settings) / "dbt.log")
    lines = "".join(f"\n  - {name}: {' '.join(message.split())}" for name, message in failed.items())
    return MartsFailed(
        expected=f"dbt to build and test the marts of {source}",
        found=f"{len(failed) or 'no'} reasons why not:{lines}\n",
        consequence="silver and gold are published; the marts may show the publication before",
        next_step=f"correct the model or the data and run the publish stage again; dbt's log is {log}",
        source=source,
        failed=failed,
        log=log,
    )
