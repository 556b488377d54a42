"""`chains`, `history` and `rollback`: sizes of chains, an entity's deltas, rows that bring a past state back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_jobs.cli.arguments import SourceArgument, instant, known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import load_settings

if TYPE_CHECKING:
    from spark_jobs.engine.deltas import ChainVersion

EntityArgument = Annotated[str, typer.Argument(help="The entity.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(chains)
    app.command()(history)
    app.command()(rollback)


def chains(source: SourceArgument, as_json: JsonOption = False) -> None:
    """Show the sizes of a source's chains.

    Their bytes are compared with those of its deltas.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    from spark_jobs.reads.chain_metrics import chain_metrics
    from spark_jobs.reads.state_reads import check_keeps_chains
    from spark_jobs.storage.lakes.spark_lake import SparkLake

    check_keeps_chains(checked)
    with server_session(settings, "tidemark-chains") as spark:
        metrics = asdict(chain_metrics(SparkLake(spark), checked))
    emit(as_json, metrics, lambda: table(["measure", "value"], list(metrics.items())))


def history(source: SourceArgument, entity: EntityArgument, as_json: JsonOption = False) -> None:
    """Show the deltas of an entity, each with the state after it."""
    settings = load_settings()
    checked = known_source(settings, source)
    from spark_jobs.engine.deltas import entity_class
    from spark_jobs.reads.state_reads import check_keeps_chains, entity_history
    from spark_jobs.storage.coordination.read_counts import count_read
    from spark_jobs.storage.lakes.spark_lake import SparkLake

    check_keeps_chains(checked)
    with server_session(settings, "tidemark-history") as spark:
        versions = entity_history(SparkLake(spark), checked, entity)
    if versions:
        count_read(settings.home, source, of_class=int(entity_class(versions[-1].state.delta_count)))
    versions_as_json = [_plain(version) for version in versions]
    columns = ["event_time", "row_id", "op", "refusal", "vector"]
    emit(as_json, versions_as_json, lambda: table(columns, [[row[c] for c in columns] for row in versions_as_json]))


def _plain(version: ChainVersion) -> dict[str, Any]:
    from spark_jobs.storage.descriptions.times import instant as of_micros

    return {
        "event_time": of_micros(version.event_time), "row_id": version.row_id,
        "op": None if version.op is None else version.op.name.lower(),
        "refusal": version.refusal, "status": version.state.status.name.lower(), "vector": list(version.state.vector),
    }  # fmt: skip


def rollback(
    source: SourceArgument,
    entity: EntityArgument,
    to: Annotated[str, typer.Option("--to", help="Event time whose state comes back.")],
    at: Annotated[str, typer.Option("--at", help="Event time of the new rows; after the entity's newest delta.")],
    as_json: JsonOption = False,
) -> None:
    """Print rows that bring an entity back to an earlier state.

    They are for a file of a coming drop. The history stays as it is.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    from spark_jobs.reads.state_reads import check_keeps_chains, check_rows_land, rollback_rows
    from spark_jobs.storage.descriptions.times import micros
    from spark_jobs.storage.lakes.spark_lake import SparkLake

    check_keeps_chains(checked)
    check_rows_land(checked)
    to_us, at_us = micros(instant(to)), micros(instant(at))
    with server_session(settings, "tidemark-rollback") as spark:
        rows = rollback_rows(SparkLake(spark), checked, entity, to_us, at_us=at_us)
    named = [{checked.header_name(column): value for column, value in row.items()} for row in rows]
    columns = list(named[0]) if named else []
    emit(as_json, named, lambda: table(columns, [list(row.values()) for row in named]))
