"""`env`: environments to try changed source files in; without a subcommand, the exports that a shell needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import known_source, server_session
from spark_jobs.cli.commands.airflow import print_environment
from spark_jobs.cli.commands.plan import sample_table
from spark_jobs.cli.output import JsonOption, emit, note, table
from spark_jobs.cli.progress import working
from spark_jobs.config import load_settings

if TYPE_CHECKING:
    from spark_jobs.lifecycle.environments import Build
    from spark_jobs.restatement.preview import TableDifference
    from spark_jobs.sources import Environment

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of an environment, such as dev.")]
SourcesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[SOURCES]...", help="Sources; without any, those whose files differ.")
]
SAMPLE = 10
"""Rows of a table that fit on a screen."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer()
    group.callback(invoke_without_command=True)(env)
    group.command("create")(create)
    group.command("build")(build)
    group.command("diff")(diff)
    group.command("promote")(promote)
    group.command("list")(list_environments)
    group.command("drop")(drop)
    app.add_typer(group, name="env")


def env(context: typer.Context) -> None:
    """Try changed source files beside production; alone: variables.

    Alone it prints the variables by which `airflow`, `tidemark` and `dbt` find this installation: `eval "$(tidemark
    env)"`. Airflow's keys are among them: keep the output out of logs. The subcommands are about environments: copies
    of source files, to be changed, planned with `tidemark plan SOURCE --env NAME`, built beside production's tables,
    compared and promoted.
    """
    if context.invoked_subcommand is None:
        print_environment()


def create(
    name: NameArgument,
    sources: Annotated[list[str] | None, typer.Argument(help="Sources whose files it gets; without any, all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy source files into a folder of the environment, to be changed there; production's stay as they are."""
    from spark_jobs.sources import create_environment

    settings = load_settings()
    environment = create_environment(settings.home, name, settings.sources, sources or ())
    states = environment.differences(settings.sources)
    document = {"environment": name, "folder": str(environment.folder), "sources": states}
    next_step = f"{name}: change the source files in {environment.folder}, then `tidemark plan SOURCE --env {name}`"
    emit(as_json, document, lambda: Text(next_step))


def build(name: NameArgument, sources: SourcesArgument = None, as_json: JsonOption = False) -> None:
    """Compute the tables of sources with the environment's files.

    The input is all rows that production has landed and published. The tables are `NAME__silver.…` and `NAME__gold.…`.
    Production's tables stay as they are; its runs wait meanwhile.
    """
    from spark_jobs.sources import find_environment, find_source

    settings = load_settings()
    environment = find_environment(settings.home, name)
    chosen = [find_source(environment.folder, source) for source in sources or _sources_with_changes(environment)]
    built: list[Build] = []
    if chosen:
        from spark_jobs.lifecycle.environments import build as build_source

        with working(f"env build {name}") as report_step, server_session(settings, "tidemark-env") as spark:
            for source in chosen:
                report_step(source.name)
                built.append(build_source(settings, environment, source, spark))
    rows = [(b.source, table, kind) for b in built for table, kind in b.tables.items()]
    document = [{"source": b.source, "changed": b.changed, "tables": b.tables} for b in built]
    unchanged = [Text(f"{b.source}: no part of its definition differs from the published one") for b in built]
    remarks = [remark for remark, b in zip(unchanged, built, strict=True) if not b.changed]
    if not chosen:
        remarks = [Text(f"{name}: every source file is production's")]
    emit(
        as_json,
        {"environment": name, "sources": document},
        lambda: Group(table(["source", "table", "is a"], rows), *remarks),
    )


def diff(
    name: NameArgument,
    sources: Annotated[list[str] | None, typer.Argument(help="Sources; without any, all that were built.")] = None,
    rows: Annotated[int, typer.Option(min=0, help="Differing rows to show per table; 0 shows all.")] = SAMPLE,
    as_json: JsonOption = False,
) -> None:
    """Show how the environment's tables differ from production's published tables."""
    from spark_jobs.sources import find_environment, find_source

    settings = load_settings()
    environment = find_environment(settings.home, name)
    documents: list[dict[str, Any]] = []
    parts: list[Any] = []
    with server_session(settings, "tidemark-env") as spark:
        from spark_jobs.lifecycle.environments import differences, require_build
        from spark_jobs.storage.lakes.spark_lake import SparkLake

        lake = SparkLake(spark)
        for source in sources or list(environment.builds()):
            checked, built = find_source(environment.folder, source), require_build(environment, source)
            is_current, tables = built.is_current(lake, checked), list(differences(lake, built, checked, rows))
            documents.append(_document(source, tables, is_current=is_current))
            counts = [(d.table, *d.counts.values(), ", ".join(lacking)) for d, lacking in tables]
            parts.append(table([source, "inserted", "changed", "removed", "columns of one alone"], counts))
            parts += [part for d, _ in tables if d.sample for part in (Text(), sample_table(d))]
            if not is_current:
                behind = f"{source}: production has landed or published something since; build again to promote"
                parts.append(Text(behind, style="yellow"))
    emit(as_json, {"environment": name, "sources": documents}, lambda: Group(*parts))


def promote(
    name: NameArgument,
    source: Annotated[str, typer.Argument(help="A source that was built.")],
    as_json: JsonOption = False,
) -> None:
    """Give production the environment's source file, and publish the tables that were built with it.

    It is one publication, and nothing is computed again. It is refused if production has landed or published something
    since the build.
    """
    from spark_jobs.cli.commands.run import document, for_people, run_source
    from spark_jobs.lifecycle.promotion import promote as promote_source
    from spark_jobs.sources import find_environment

    settings = load_settings()
    environment = find_environment(settings.home, name)
    known_source(settings, source)

    def run(*interval: Any, **options: Any) -> Any:
        return run_source(settings, source, *interval, prefix="promote", **options)

    with working(f"promote {source}") as report_step:
        report = promote_source(settings, environment, source, run, report_step)
    note(f"{source}: production's source file is that of {name}; `tidemark env drop {name}` removes the environment")
    emit(as_json, document(report), lambda: for_people(report))


def list_environments(as_json: JsonOption = False) -> None:
    """List the environments with changed source files and the times at which their tables were built."""
    from spark_jobs.sources import environments

    settings = load_settings()
    documents, lines = [], []
    for environment in environments(settings.home):
        states, built = environment.differences(settings.sources), _times_of_builds(environment)
        where = {"environment": environment.name, "folder": str(environment.folder)}
        documents.append({**where, "sources": states, "built": built})
        lines += [
            (environment.name, source, state, built.get(source, "no"), str(environment.folder))
            for source, state in states.items()
        ]
    columns = ["environment", "source", "file", "built", "folder"]
    emit(as_json, {"environments": documents}, lambda: table(columns, lines))


def drop(name: NameArgument, as_json: JsonOption = False) -> None:
    """Remove an environment with its source files and tables."""
    from spark_jobs.sources import drop_environment, find_environment

    settings = load_settings()
    environment = find_environment(settings.home, name)
    if environment.builds():
        with server_session(settings, "tidemark-env") as spark:
            from spark_jobs.lifecycle.environments import drop_tables
            from spark_jobs.storage.lakes.spark_lake import SparkLake

            drop_tables(SparkLake(spark), environment)
    drop_environment(settings.home, name)
    emit(as_json, {"dropped": name}, lambda: Text(f"dropped {name}"))


def _sources_with_changes(environment: Environment) -> list[str]:
    """The sources whose file differs from production's."""
    states = environment.differences(load_settings().sources)
    return [source for source, state in states.items() if state != "same"]


def _times_of_builds(environment: Environment) -> dict[str, str]:
    """The time at which tables were built, by source."""
    import json

    return {source: json.loads(text)["built_at"] for source, text in environment.builds().items()}


def _document(source: str, tables: list[tuple[TableDifference, list[str]]], *, is_current: bool) -> dict[str, Any]:
    listed = [
        {
            "table": d.table,
            "identity": list(d.identity),
            **d.counts,
            "columns_of_one_alone": lacking,
            "sample": d.sample,
        }
        for d, lacking in tables
    ]
    return {"source": source, "stands": is_current, "tables": listed}
