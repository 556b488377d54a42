"""Build the marts of one source with dbt, in this process, against the lake server's SQL port.

dbt keeps its parsed project and its logs under the data directory. So a later build does not parse the project again,
and the checkout stays clean. Importing dbt takes some seconds: `preload` does it while Spark is busy.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.failures import recognized_in
from spark_jobs.publish.changes import Changes
from spark_jobs.publish.dbt_connections import adapt_connections
from spark_jobs.publish.project import PROJECT, Project
from spark_jobs.server.errors import END_OF_SPARK
from spark_jobs.server.logins import Login, login
from spark_jobs.server.state import running_supervisor
from spark_jobs.server.thrift_client import thrift_connection
from spark_jobs.sources import Source

_PASSED = ("pass", "warn")
_NO_FAILURE = ("success", "pass", "warn", "skipped", "no-op")
"""dbt's statuses of models and tests that did not fail themselves; it skips those that depend on a failed one."""
_SERVER_LOST = re.compile(
    r"Could not connect to any of|TTransportException: unexpected exception|TSocket read 0 bytes"
    rf"|Connection reset by peer|Broken pipe|{END_OF_SPARK.pattern}"
)
"""Messages of Thrift about a server that does not answer, or that ended while a connection was opened or a statement
ran; and messages of the server itself while it ends."""
ROWS_INTERPRETED = 2_000_000
"""Up to so many rows of windows Spark interprets the marts' queries. Generating and compiling code for them took 42 %
of the samples in a profile of the flights' marts of one day."""
ROWS_REPLACED = 100_000
"""Up to so many rows of windows all rows of a mart are replaced, not those of the range that changed: Delta writes a
range by two queries, one for the rows of the range's files that stay."""
MOST_LINES, MOST_CHARACTERS = 3, 400
"""The lines and characters of a message of dbt that are kept. The message may end in Java's whole stack trace, and the
log has all of it."""


@dataclass(frozen=True, slots=True)
class MartTest:
    """The result of one of dbt's tests.

    `mart`: the mart that it is about; `reads`: all marts that it reads. `status` and `severity` (error or warn) are
    dbt's words. `failures`: how many rows break it. `query`: the query that returns those rows.
    """

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
        """The test of one of dbt's results."""
        node = result.node
        mart = str(getattr(node, "attached_node", None) or "").rpartition(".")[2]
        reads = frozenset(id_.rpartition(".")[2] for id_ in node.depends_on_nodes if id_.startswith("model."))
        severity = str(getattr(node.config, "severity", "error")).lower()
        query = getattr(node, "compiled_code", None)
        status = str(result.status)
        message = (
            "not run: a model that it reads failed" if status == "skipped" else _first_lines(result.message or status)
        )
        return cls(node.name, mart, reads, status, result.failures, severity, message, query)

    @property
    def holds_back(self) -> bool:
        """True if the marts that the test reads must not be shown: it failed, or it must hold and was skipped."""
        return self.status not in _PASSED and (self.status != "skipped" or self.severity == "error")


@dataclass(frozen=True, slots=True)
class Failure:
    """A model or test that failed, or dbt itself.

    `kind` is dbt's type of the node, such as model or test, or `dbt`. `file` is relative to the project. `marts`: those
    that it concerns. `rows`: the number of rows that break a test. `message`: the first lines of dbt's message.
    `next_step`: what to do if the lake server, a disk or memory failed, else None.
    """

    kind: str
    name: str
    file: str | None
    marts: Sequence[str]
    rows: int | None
    message: str
    next_step: str | None

    @classmethod
    def of(cls, result: Any) -> Failure:
        """The failure of one of dbt's results."""
        node, test = result.node, MartTest.of(result) if result.node.resource_type == "test" else None
        marts = [node.name] if test is None else sorted(test.reads)
        message, next_step = _message_and_next_step(result.message or str(result.status))
        if test is not None and next_step is None:
            message = test.message
        kind, file = str(node.resource_type), node.original_file_path
        return cls(kind, node.name, file, marts, result.failures, message, next_step)

    @classmethod
    def of_dbt(cls, reason: str) -> Failure:
        """The failure of dbt itself, with no model or test."""
        return cls("dbt", "dbt", None, (), None, *_message_and_next_step(reason))


def _message_and_next_step(message: str) -> tuple[str, str | None]:
    """The text of a message of dbt for people, and the next step if the lake server, a disk or memory failed."""
    if _SERVER_LOST.search(message):
        return _first_lines(message), "start the lake server with `tidemark up` if it is down, and do the same again"
    return recognized_in(message) or (_first_lines(message), None)


def _first_lines(message: str) -> str:
    """The first lines of a message of dbt, joined into one line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    text = " ".join(lines[:MOST_LINES])
    cut = len(lines) > MOST_LINES or len(text) > MOST_CHARACTERS
    return f"{text[:MOST_CHARACTERS]} …" if cut else text


class MartsFailed(TidemarkError):
    """dbt could not build or test a source's marts. Facts: `source`, `failed` (the name of each model or test -> the
    first lines of dbt's message), `owner` (the person who has to act), `log` (the file with the whole messages)."""

    code = "marts_failed"
    source: str
    failed: dict[str, str]
    owner: str
    log: str


@dataclass(frozen=True, slots=True)
class MartsResult:
    """The result of a build by dbt.

    status: dbt's status of each model and test, by name. passed: the marts that were built and that no test holds back.
    stay: the other marts, which people see as they were. failed: the models and tests that failed themselves; a mart
    may have passed although another one failed.
    """

    source: str
    status: Mapping[str, str]
    passed: list[str]
    stay: list[str]
    failed: Sequence[Failure]
    tests: Sequence[MartTest]
    seconds: float

    def describe(self) -> str:
        """A sentence about a build without failures: the marts, the seconds, and the results of the tests."""
        warned = sum(test.status == "warn" for test in self.tests)
        n_passed = sum(test.status == "pass" for test in self.tests)
        tests = f"{n_passed} test{'' if n_passed == 1 else 's'} passed" if self.tests else "no test is about them"
        return f"{_list_marts(self.passed)} built in {self.seconds:.1f} s; {tests}" + (
            f", {warned} warned" if warned else ""
        )

    @property
    def models_failed(self) -> list[str]:
        """The marts that could not be built."""
        return [failure.name for failure in self.failed if failure.kind == "model"]

    @classmethod
    def of(cls, source: str, results: Sequence[Any], seconds: float, reason: str | None = None) -> MartsResult:
        """The result of a build with these results of dbt. `reason`: why dbt failed, used if none of them failed."""
        tests = [MartTest.of(result) for result in results if result.node.resource_type == "test"]
        models = {r.node.name: str(r.status) for r in results if r.node.resource_type == "model"}
        held_back = {mart for test in tests if test.holds_back for mart in test.reads}
        passed = sorted(name for name, status in models.items() if status == "success" and name not in held_back)
        failed = [Failure.of(result) for result in results if str(result.status) not in _NO_FAILURE]
        if not failed:
            holding = {test.name for test in tests if test.holds_back}
            failed = [Failure.of(result) for result in results if result.node.name in holding]
        if reason is not None and not failed:
            failed = [Failure.of_dbt(reason)]
        status = {r.node.name: str(r.status) for r in results}
        return cls(source, status, passed, sorted(models.keys() - set(passed)), failed, tests, seconds)


@dataclass(frozen=True, slots=True)
class BuiltMart:
    """A mart's table in `marts_staging` as it is now.

    `columns` have their types; `published` and `model` are the publication and the model that the table reflects.
    `shown`: True if people see this version. A table that they do not see may have any rows, and is written whole.
    """

    columns: Sequence[str]
    published: int | None
    model: str | None
    shown: bool


def preload() -> None:
    """Import dbt, and adapt its connections."""
    import dbt.cli.main  # noqa: F401

    adapt_connections()


def build_marts(
    settings: Settings,
    project: Project,
    source: Source,
    *,
    published_us: int,
    built: Mapping[str, BuiltMart],
    changes: Changes,
    rows: int,
) -> MartsResult:
    """Bring the marts of `source` in `marts_staging` up to its publication, and test them.

    `published_us` is the publication in force, which the marts' commits note. `built` has the marts' tables as they
    are now, by name, and `changes` the changes since they were written. `rows`: the rows of the histories that the
    marts are made of. A failed build leaves each mart as it was or at the new publication, never between: run it again.
    """
    start_s = time.monotonic()
    arguments = ["build", "--select", *project.selectors(source), *dbt_options(settings, project)]
    with dbt_environment(settings, published_us, built, changes, rows):
        outcome = run_dbt(arguments)
    results: Sequence[Any] = getattr(outcome.result, "results", None) or []
    reason = None if outcome.success else str(outcome.exception or "no reason given")
    return MartsResult.of(source.name, results, time.monotonic() - start_s, reason)


def run_dbt(arguments: Sequence[str]) -> Any:
    """The outcome of a command of dbt (`dbtRunnerResult`); an interrupt, which dbt takes for a failure, is raised."""
    preload()
    from dbt.cli.main import dbtRunner

    outcome = dbtRunner().invoke([*arguments])
    if outcome.exception is not None and not isinstance(outcome.exception, Exception):
        raise outcome.exception
    return outcome


def dbt_options(settings: Settings, project: Project, target: Path | None = None) -> list[str]:
    """dbt's options for a project; dbt writes its files to `target`, which is the builds' folder by default."""
    target = target or settings.home / "dbt" / "target"
    return [
        *("--project-dir", str(project.folder), "--profiles-dir", str(PROJECT)),
        *("--target-path", str(target), "--log-path", str(_logs(settings))),
        *("--log-level", "none", "--log-level-file", "info", "--no-use-colors", "--no-version-check"),
        # dbt would list all tables before a build; `macros/mart.sql` asks for each mart by itself instead
        *("--no-send-anonymous-usage-stats", "--no-populate-cache"),
    ]


def _logs(settings: Settings) -> Path:
    return settings.logs_dir / "dbt"


@contextmanager
def dbt_environment(
    settings: Settings,
    published_us: int,
    built: Mapping[str, BuiltMart],
    changes: Changes,
    rows: int,
) -> Iterator[None]:
    """Set the environment variables that the project reads, from `build_marts`'s arguments, for one command of dbt."""
    user = login(settings, "writer")
    wanted = {
        "TIDEMARK_JDBC_USER": user.user,
        "DBT_ENV_SECRET_TIDEMARK_PASSWORD": user.password,
        "TIDEMARK_TLS": str(settings.tls_keystore is not None),
        "TIDEMARK_SERVER_HOST": settings.server_host,
        "TIDEMARK_THRIFT_PORT": str(settings.thrift_port),
        "TIDEMARK_PUBLISHED_US": str(published_us),
        "TIDEMARK_MARTS": json.dumps({mart: asdict(of_mart) for mart, of_mart in built.items()}),
        "TIDEMARK_CHANGES": json.dumps(changes),
        "TIDEMARK_COMPILED": str(rows > ROWS_INTERPRETED).lower(),
        "TIDEMARK_SMALL": str(rows <= ROWS_REPLACED).lower(),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        with _connected_by_us(settings, user):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _connected_by_us(settings: Settings, user: Login) -> Iterator[None]:
    """Have dbt open its connections as our other clients do: by itself it would send the password to any listener."""
    from dbt.adapters.spark import connections

    def connect(**wishes: Any) -> Any:
        return thrift_connection(settings, user, timeout_s=None, configuration=wishes.get("configuration"))

    theirs = connections.hive
    connections.hive = SimpleNamespace(connect=connect)
    try:
        yield
    finally:
        connections.hive = theirs


def marts_failed(
    settings: Settings, project: Project, source: Source, result: MartsResult, *, visible: Collection[str], again: str
) -> MartsFailed:
    """The error that names the models and tests that failed, the person who has to act, and the log.

    `visible`: the marts that people see; each shows its last version that passed. `again`: the command that builds the
    marts again.
    """
    log = str(_logs(settings) / "dbt.log")
    supervisor = running_supervisor(settings)
    has_pages = settings.airflow_host is not None or (supervisor is not None and supervisor.airflow)
    lines = "".join(_lines(settings, project, failure, has_pages=has_pages) for failure in result.failed)
    correction = (
        f"the owner of {source.name} ({source.dag.owner}) corrects the model or the data; then `{again}` builds the"
        " marts again"
    )
    steps = "; ".join(dict.fromkeys(failure.next_step or correction for failure in result.failed))
    return MartsFailed(
        expected=f"dbt to build and test the marts of {source.name}",
        found=f"{len(result.failed)} that failed:{lines}\n",
        consequence=f"silver and gold are published; {_held_back(result.stay, visible)}",
        next_step=f"{steps}; {log} has dbt's messages in full",
        source=source.name,
        failed={failure.name: failure.message for failure in result.failed},
        owner=source.dag.owner,
        log=log,
    )


def _held_back(marts: Sequence[str], visible: Collection[str]) -> str:
    """Words about marts that people do not see as they are now."""
    if not marts:
        return "all marts stay as they were"
    old, new = [mart for mart in marts if mart in visible], [mart for mart in marts if mart not in visible]
    parts = []
    if old:
        parts.append(f"{_list_marts(old)} {'stays as it was' if len(old) == 1 else 'stay as they were'}")
    if new:
        one = len(new) == 1
        parts.append(
            f"{_list_marts(new)} {'is' if one else 'are'} not there until {'its' if one else 'their'} tests pass"
        )
    return "; ".join(parts)


def _list_marts(marts: Sequence[str]) -> str:
    return ", ".join(f"marts.{mart}" for mart in marts)


def _lines(settings: Settings, project: Project, failure: Failure, *, has_pages: bool) -> str:
    about = "" if failure.kind != "test" else f" of {_list_marts(failure.marts)}"
    name = failure.name if failure.kind == failure.name else f"{failure.kind} {failure.name}"
    rows = "" if not failure.rows else f"{failure.rows:,} rows break it; "
    lines = [f"- {name}{about}: {rows}dbt says: {failure.message}"]
    if failure.file is not None:
        lines.append(f"  its file is {project.written_as(settings, failure.file)}")
    if has_pages:
        lines += [f"  its page is {settings.page_url('marts', mart)}" for mart in failure.marts[:1]]
    return "".join(f"\n  {line}" for line in lines)
