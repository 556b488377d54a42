"""`env`: environments to try changed source files in; without a subcommand, what a shell needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import known_source, server_session
from spark_jobs.cli.commands.airflow import print_environment
from spark_jobs.cli.commands.plan import sample_table
from spark_jobs.cli.output import JsonOption, emit, note, table
from spark_jobs.config import load_settings

if TYPE_CHECKING:
    from spark_jobs.restatement.preview import Difference
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
    """Print the variables by which `airflow`, `tidemark` and `dbt` find this installation: `eval "$(tidemark env)"`.

    Airflow's keys are among them: keep the output out of logs. The subcommands are about environments: copies of
    source files, to be changed, planned with `tidemark plan SOURCE --env NAME`, built beside production's tables,
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
    said = f"{name}: change the source files in {environment.folder}, then `tidemark plan SOURCE --env {name}`"
    emit(as_json, document, lambda: Text(said))


def build(name: NameArgument, sources: SourcesArgument = None, as_json: JsonOption = False) -> None:
    """Work out the tables of sources with the environment's files, over what production has landed and published, and
    show them as `NAME__silver.…` and `NAME__gold.…`. Production's tables stay as they are; its runs wait meanwhile.
    """
    from spark_jobs.sources import find_environment, find_source

    settings = load_settings()
    environment = find_environment(settings.home, name)
    chosen = [find_source(environment.folder, source) for source in sources or _differing(environment)]
    built = []
    if chosen:
        from spark_jobs.jobs.environments import build as build_source

        with server_session(settings, "tidemark-env") as spark:
            built = [build_source(settings, environment, source, spark) for source in chosen]
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
    """Show how the environment's tables differ from what production shows now."""
    from spark_jobs.sources import find_environment, find_source

    settings = load_settings()
    environment = find_environment(settings.home, name)
    documents: list[dict[str, Any]] = []
    parts: list[Any] = []
    with server_session(settings, "tidemark-env") as spark:
        from spark_jobs.jobs.environments import differences, require_build
        from spark_jobs.storage.lakes.spark_lake import SparkLake

        lake = SparkLake(spark)
        for source in sources or list(environment.builds()):
            checked, built = find_source(environment.folder, source), require_build(environment, source)
            stands, tables = built.stands(lake, checked), list(differences(lake, built, checked, rows))
            documents.append(_document(source, tables, stands=stands))
            counts = [(d.table, *d.counts.values(), ", ".join(lacking)) for d, lacking in tables]
            parts.append(table([source, "inserted", "changed", "removed", "columns of one alone"], counts))
            parts += [part for d, _ in tables if d.sample for part in (Text(), sample_table(d))]
            if not stands:
                behind = f"{source}: production has landed or published something since; build again to promote"
                parts.append(Text(behind, style="yellow"))
    emit(as_json, {"environment": name, "sources": documents}, lambda: Group(*parts))


def promote(
    name: NameArgument,
    source: Annotated[str, typer.Argument(help="A source that was built.")],
    as_json: JsonOption = False,
) -> None:
    """Let production have the environment's source file, and publish what was built with it, in one publication and
    without working it out again. Refused if production has landed or published something since the build.
    """
    from spark_jobs.cli.commands.run import document, for_people, progress, run_source
    from spark_jobs.jobs.promotion import promote as promote_source
    from spark_jobs.sources import find_environment

    settings = load_settings()
    environment = find_environment(settings.home, name)
    known_source(settings, source)

    def run(*interval: Any, **options: Any) -> Any:
        return run_source(settings, source, *interval, prefix="promote", **options)

    with progress() as on_stage:
        report = promote_source(settings, environment, source, run, on_stage)
    note(f"{source}: production's source file is that of {name}; `tidemark env drop {name}` removes the environment")
    emit(as_json, document(report), lambda: for_people(report))


def list_environments(as_json: JsonOption = False) -> None:
    """The environments, which of their source files differ from production's, and when their tables were built."""
    from spark_jobs.sources import environments

    settings = load_settings()
    documents, lines = [], []
    for environment in environments(settings.home):
        states, built = environment.differences(settings.sources), _built(environment)
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
            from spark_jobs.jobs.environments import drop_tables
            from spark_jobs.storage.lakes.spark_lake import SparkLake

            drop_tables(SparkLake(spark), environment)
    drop_environment(settings.home, name)
    emit(as_json, {"dropped": name}, lambda: Text(f"dropped {name}"))


def _differing(environment: Environment) -> list[str]:
    """Sources whose file is another than production's."""
    states = environment.differences(load_settings().sources)
    return [source for source, state in states.items() if state != "same"]


def _built(environment: Environment) -> dict[str, str]:
    """When tables were built, by source."""
    import json

    return {source: json.loads(text)["built_at"] for source, text in environment.builds().items()}


def _document(source: str, tables: list[tuple[Difference, list[str]]], *, stands: bool) -> dict[str, Any]:
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
    return {"source": source, "stands": stands, "tables": listed}
