"""`trace`: a source's frontiers, batches and steps; definite reads; remains of crashes; visible times kept readable."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_jobs.cli.arguments import SourceArgument, instant, known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.model import pluralize

if TYPE_CHECKING:
    from spark_jobs.trace.inspection import BatchReport, TraceReport

KEPT_BY_BRONZE = "bronze keeps all rows of the files"
"""Bronze also keeps rows that were taken back, until an erasure."""

NameArgument = Annotated[str, typer.Argument(help="Name of the held read.")]


class ShowByDefault(typer.core.TyperGroup):
    """A word that is no command is a source to show: `tidemark trace flights`."""

    DEFAULT = "show"
    """The command that takes it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, `DEFAULT` where the first word names none."""
        names_a_command = args and args[0] in self.commands
        return super().resolve_command(ctx, args if names_a_command else [self.DEFAULT, *args])


def register(app: typer.Typer) -> None:
    """Add the commands."""
    about = "Show the trace of a source: `tidemark trace SOURCE`."
    group = typer.Typer(cls=ShowByDefault, no_args_is_help=True, help=about)
    for command in (show, steps, snapshot, sweep, hold, release):
        group.command()(command)
    app.add_typer(group, name="trace")


def show(source: SourceArgument, as_json: JsonOption = False) -> None:
    """Show frontiers, batches with levels and sizes, held reads, and the places of retracted data."""
    settings = load_settings()
    checked = known_source(settings, source)
    with server_session(settings, "tidemark-trace") as spark:
        from spark_jobs.storage.coordination import publication
        from spark_jobs.storage.lakes.spark_lake import SparkLake
        from spark_jobs.trace import frontiers
        from spark_jobs.trace.inspection import inspect

        lake = SparkLake(spark)
        current = publication.load(lake, checked)
        report = inspect(lake, checked, frontiers.load(lake, checked, near=current.token), current)
    emit(as_json, report.to_json(), lambda: _render_report(report))


def steps(
    source: SourceArgument,
    last: Annotated[int, typer.Option(min=1, help="The number of commits to show, the newest ones.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show the steps that the trace has taken, by commit: append, seal, drain, evict, allow_compaction, merge."""
    settings = load_settings()
    checked = known_source(settings, source)
    with server_session(settings, "tidemark-trace-steps") as spark:
        from spark_jobs.storage.lakes.spark_lake import SparkLake
        from spark_jobs.trace.frontiers import moves
        from spark_jobs.trace.steps import steps_between

        rows = [
            [row["token"], row["run_id"], step.kind, step.batch or None, step.updates or None,
             step.lower.time, step.upper.time, " ".join(step.replaced) or None]
            for row, move in [*moves(SparkLake(spark), checked)][-last:]
            for step in steps_between(move.before.arrangement, move.after.arrangement)
        ]  # fmt: skip
    columns = ["token", "run", "step", "batch", "updates", "from", "to", "replaced"]
    as_text = [[*row[:5], _time_text(row[5]), _time_text(row[6]), row[7]] for row in rows]
    emit(as_json, [dict(zip(columns, row, strict=True)) for row in rows], lambda: table(columns, as_text))


def snapshot(
    source: SourceArgument,
    entity: Annotated[str, typer.Option(help="The entity, exactly.")],
    at: Annotated[str, typer.Option("--at", help="A visible time before the seal, and not before since.")],
    as_json: JsonOption = False,
) -> None:
    """Show an entity's rows as the trace has them at a visible time: a read that never changes.

    Rows that came below the horizon are among them; 1 in `below_horizon` marks them.
    """
    from spark_jobs.storage.descriptions.times import micros

    settings = load_settings()
    checked = known_source(settings, source)
    at_us = micros(instant(at))
    with server_session(settings, "tidemark-trace-snapshot") as spark:
        from spark_jobs.storage.coordination import publication
        from spark_jobs.storage.lakes.spark_lake import SparkLake
        from spark_jobs.trace import Arrangement, frontiers
        from spark_jobs.trace.journal import MemoryJournal
        from spark_jobs.trace.source_plane import EntityPlane

        lake = SparkLake(spark)
        current = frontiers.load(lake, checked, near=publication.load(lake, checked).token)
        read = Arrangement(EntityPlane(lake, checked, entity), MemoryJournal({checked.name: current.arrangement}),
                           collection=checked.name).snapshot(at_us)  # fmt: skip
    rows = read.to_pylist()
    emit(as_json, rows, lambda: table(read.column_names, [list(row.values()) for row in rows]))


def sweep(source: SourceArgument, as_json: JsonOption = False) -> None:
    """Remove remains of crashed attempts: batches and rows that do not count. Safe while a run is on."""
    settings = load_settings()
    checked = known_source(settings, source)
    with server_session(settings, "tidemark-trace-sweep") as spark:
        from spark_jobs.jobs.visits import sweep as sweep_source

        swept = sweep_source(settings, checked, spark)
    removed = [["trace", b.handle, b.n_updates] for b in swept.batches]
    removed += [[name, None, rows] for name, rows in swept.history.items()]
    emit(
        as_json,
        swept.to_json(),
        lambda: table(["table", "batch", "rows"], removed) if removed else Text(f"{source}: nothing to sweep"),
    )


def hold(
    source: SourceArgument,
    name: NameArgument,
    at: Annotated[str, typer.Option("--at", help="The visible time that must stay readable.")],
    lives: Annotated[str, typer.Option("--for", help="The duration of the lease, such as `2 hours`.")],
    as_json: JsonOption = False,
) -> None:
    """Keep a visible time readable until a lease expires; retention does not pass it."""
    from spark_jobs.storage.descriptions.times import micros

    settings = load_settings()
    checked = known_source(settings, source)
    at_us, lease_us = micros(instant(at)), _duration(lives)
    with server_session(settings, "tidemark-trace-hold") as spark:
        from spark_jobs.engine.arrangement import ReadLease
        from spark_jobs.jobs.visits import hold as hold_read

        lease = ReadLease(name, at_us, time.time_ns() // 1000 + lease_us)
        state = hold_read(settings, checked, spark, lease).arrangement
    emit(as_json, {"leases": [_lease(lease) for lease in state.leases]}, lambda: _leases(state.leases))


def release(source: SourceArgument, name: NameArgument, as_json: JsonOption = False) -> None:
    """End a held read."""
    settings = load_settings()
    checked = known_source(settings, source)
    with server_session(settings, "tidemark-trace-release") as spark:
        from spark_jobs.jobs.visits import release as release_read

        state = release_read(settings, checked, spark, name).arrangement
    emit(as_json, {"leases": [_lease(lease) for lease in state.leases]}, lambda: _leases(state.leases))


def _duration(text: str) -> int:
    from spark_jobs.sources.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise ParameterError(
            expected="a duration such as `2 hours`",
            found=repr(text),
            next_step="write a number and a unit: s, min, h, day",
        ) from error


def _render_report(report: TraceReport) -> RenderableType:
    names = ("since", "published", "trace_upper", "seal", "reached", "horizon", "rows_from")
    frontiers = [[name, _time_text(getattr(report, f"{name}_us"))] for name in names]
    columns = ["batch", "place", "level", "updates", "bytes", "lower", "upper", "since"]
    parts: list[RenderableType] = [
        table(["frontier", "time"], frontiers, title=report.source),
        Text(),
        table(columns, [_batch(batch) for batch in report.batches]),
    ]
    faults = [Text(f"{batch.batch} is not as it must be: {batch.fault}") for batch in report.batches if batch.fault]
    if faults:
        parts += [Text(), *faults]
    if report.leases:
        parts += [Text(), _leases(report.leases)]
    return Group(*parts, Text(), Text(_about_retracted(report)))


def _batch(batch: BatchReport) -> list[Any]:
    merged = _time_text(batch.since_us) if batch.since_us else None
    interval = (
        [_time_text(batch.lower_us), _time_text(batch.upper_us), merged]
        if batch.place == "trace"
        else [_time_text(batch.least_us), _time_text(batch.greatest_us), None]
    )
    return [batch.batch, batch.place, batch.level, batch.n_updates, batch.size, *interval]


def _about_retracted(report: TraceReport) -> str:
    retracted = report.retracted
    if retracted.gone:
        return f"The trace has no retracted rows any more; {KEPT_BY_BRONZE}."
    parts = []
    if retracted.in_trace:
        parts.append(
            f"{retracted.in_trace} retractions in live batches, until since has passed {_time_text(retracted.last_us)}"
        )
    if retracted.replaced_updates:
        parts.append(
            f"{retracted.replaced_updates} updates in replaced batches, until a later run or a sweep removes them"
        )
    if retracted.dead_files:
        files = pluralize(retracted.dead_files, "file")
        parts.append(f"{files} ({retracted.dead_bytes:,} bytes) out of use, until a VACUUM removes them")
    return f"The trace still has retracted rows: {'; '.join(parts)}; {KEPT_BY_BRONZE}."


def _leases(leases: Any) -> RenderableType:
    return table(["held read", "at", "expires"], [[x.name, _time_text(x.at), _time_text(x.expires_at)] for x in leases])


def _lease(lease: Any) -> dict[str, Any]:
    return {"name": lease.name, "at_us": lease.at, "expires_us": lease.expires_at}


def _time_text(time_us: int | None) -> str | None:
    from spark_jobs.storage.descriptions.times import instant as of_micros

    return None if time_us is None else of_micros(time_us).isoformat().replace("+00:00", "Z")
