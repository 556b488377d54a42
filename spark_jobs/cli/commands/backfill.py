"""`backfill`: a range of drops through Airflow, many drops a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import (
    FIRST_DROP,
    LAST_DROP,
    AcceptDefinitionOption,
    PassGapOption,
    SourceArgument,
    known_source,
    server_session,
)
from spark_jobs.cli.backfill_progress import STOPPED, show_progress, stopping
from spark_jobs.cli.drops import drops_asked_for
from spark_jobs.cli.output import JsonOption, emit, note, table
from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.model import pluralize

if TYPE_CHECKING:
    from spark_jobs.jobs.drops import DropStatus
    from spark_jobs.server.backfill import Backfill, BackfillFailed, SliceRun
    from spark_jobs.sources import Source
    from spark_jobs.trace.gap import SealGap

SLICE_BYTES = 16 << 20
"""Of files that one run takes where nobody says how many drops: some minutes of work, so that a run that fails, or a
reader that waits for the next publication, costs no more."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(backfill)


def backfill(
    source: SourceArgument,
    *,
    first: Annotated[str | None, typer.Option("--from", help=FIRST_DROP)] = None,
    last: Annotated[str | None, typer.Option("--to", help=LAST_DROP)] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Drops per run; default: `dag.batch` of the source file, else by size.")
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="One drop per run, as daily runs would publish: the same as --batch 1.")
    ] = False,
    only_missing: Annotated[
        bool, typer.Option("--only-missing", help="Of the range, or of all, the drops that have not landed as a whole.")
    ] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Of the range, or of all, the drops whose newest run in Airflow failed.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the backfill that was begun last.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which runs it takes, with rows and time; `tidemark plan` says more.")
    ] = False,
    accept_definition: AcceptDefinitionOption = False,
    pass_gap: PassGapOption = False,
    unpause: Annotated[
        bool, typer.Option("--unpause", help="Unpause a DAG that has a schedule; its scheduled runs begin, too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a range of drops through Airflow, and wait for it.

    A run has many drops, also drops that have run before, and is one publication. Ctrl-C stops the backfill after the
    present run; --resume continues it.
    """
    from spark_jobs.server import backfill as backfills

    settings = load_settings()
    checked = known_source(settings, source)
    if resume:
        if any((first, last, batch, each, only_missing, failed, accept_definition, pass_gap, dry_run)):
            raise ParameterError(
                expected="--resume alone: it continues the backfill with the options of its start",
                found="--resume with an option that chooses runs, or --dry-run",
                next_step="leave either out",
            )
        work = backfills.last_backfill(settings, source)
    else:
        batch = _one_drop(batch) if each else batch
        if not (only_missing or failed or (first and last)):
            raise ParameterError(
                expected="--from and --to, --only-missing, --failed or --resume",
                found="none of them",
                next_step="say which drops to run",
            )
        drops = drops_asked_for(settings, checked, first, last, only_missing=only_missing, failed=failed)
        if dry_run or not drops:
            plan = plan_runs(settings, checked, drops, batch)
            emit(as_json, plan, lambda: _plan_view(plan))
            return
        slices = [_slice(checked, each) for each in slice_drops(checked, drops, batch)]
        work = backfills.new_backfill(source, slices, pass_gap=pass_gap, accept_definition=accept_definition)
    runs = through_airflow(settings, checked, work, unpause=unpause)
    emit(as_json, [asdict(run) for run in runs], lambda: _runs_table(runs))
    if any(run.state != "success" for run in runs):
        note(f"stopped; continue with: tidemark backfill {source} --resume")
        raise typer.Exit(STOPPED)


def _one_drop(batch: int | None) -> int:
    if batch not in (None, 1):
        raise ParameterError(
            expected="--each or --batch", found="both", next_step="leave one out: --each runs one drop at a time"
        )
    return 1


def slice_drops(source: Source, drops: list[DropStatus], batch: int | None) -> list[list[DropStatus]]:
    """The drops of each run."""
    from spark_jobs.jobs.drops import slices

    return slices(drops, batch=batch or source.dag.batch, most_bytes=SLICE_BYTES)


def backfill_range(settings: Settings, source: Source, first: str, last: str) -> list[SliceRun]:
    """Run a range of drops as one run, as the command does."""
    from spark_jobs.server import backfill as backfills

    work = backfills.new_backfill(source.name, [_slice(source, drops_asked_for(settings, source, first, last))])
    return through_airflow(settings, source, work)


def through_airflow(settings: Settings, source: Source, backfill: Backfill, *, unpause: bool = False) -> list[SliceRun]:
    """Carry out a backfill, and show how it gets on. Raises as `server.backfill.carry_out`, and the refusal of drops
    that were left out where that is why a run failed."""
    from spark_jobs.server import backfill as airflow
    from spark_jobs.server.airflow_api import AirflowApi

    total = sum(each.drops for each in backfill.slices)
    with (
        AirflowApi(settings) as api,
        stopping(source.name) as stop,
        _place_in_line(settings, source, backfill) as keep_place,
        show_progress(source.name, total) as tell,
    ):

        def look(runs: list[SliceRun]) -> None:
            tell(runs)
            keep_place(runs, stop.asked)

        try:
            scheduled = source.dag.schedule == "every"
            return airflow.carry_out(
                settings,
                api,
                backfill,
                by_itself=scheduled,
                unpause=unpause,
                asked_to_stop=stop,
                on_look=look,
                on_wait=lambda whom: note(f"waits for {whom}"),
            )
        except airflow.BackfillFailed as failure:
            gap = None if backfill.pass_gap else _gap_of(settings, source, backfill, failure)
            if gap is None:
                raise
            raise gap from failure


@contextmanager
def _place_in_line(settings: Settings, source: Source, backfill: Backfill) -> Iterator[Any]:
    """Keep the place of the backfill's next run in the line of the source's runs while its present run is at work.

    So a run of later drops, which would leave out drops of the backfill, waits for all of it. While the present run is
    only queued, the next run loses its place: Airflow begins no run while `max_active_runs` runs wait, and these would
    wait for that place."""
    from spark_jobs.storage.coordination.turns import Line, NoDriver, Turn

    lines: dict[str, Line] = {}

    def leave() -> None:
        for line in lines.values():
            line.leave_line()
        lines.clear()

    def keep(runs: list[SliceRun], stops: bool) -> None:
        number = next((n for n, run in enumerate(runs) if run.state == "waiting"), None)
        if number is None or stops:
            return leave()
        run_id = backfill.run_id(number)
        if run_id not in lines:
            lines.clear()  # the place of the run before is that run's own
            each = backfill.slices[number]
            turn = Turn(run_id, source.drops.time_named(each.first), f"{each.first} to {each.last}", staged=True)
            lines[run_id] = Line(settings.home / "leases", source.name, turn, NoDriver())
        elif not any(run.state == "running" for run in runs):
            return None
        return lines[run_id].keep_place()

    try:
        yield keep
    finally:
        leave()


def _slice(source: Source, drops: list[DropStatus]) -> Any:
    from spark_jobs.server.backfill import BackfillSlice

    labels = [source.drops.label(drops[end].seq_no) for end in (0, -1)]
    return BackfillSlice(labels[0], labels[1], len(drops), sum(drop.bytes for drop in drops))


def plan_runs(settings: Settings, source: Source, drops: list[DropStatus], batch: int | None) -> list[dict[str, Any]]:
    """The runs that a backfill of these drops takes: files, bytes, rows and seconds of each.

    A number is None if no past run allows an estimate."""
    from spark_jobs.jobs.estimate import estimate_seconds
    from spark_jobs.storage.coordination import leases

    with leases.hold_still(settings.home / "leases", source=source.name) as lease:
        past = lease.past
    landed_drops = [drop for drop in drops if drop.state == "landed" and drop.bytes]
    known_bytes = sum(drop.bytes for drop in landed_drops)
    per_byte = sum(drop.rows for drop in landed_drops) / known_bytes if known_bytes else None
    result = []
    for each in slice_drops(source, drops, batch):
        of_run = _slice(source, each)
        rows = None
        if per_byte is not None or all(drop.state == "landed" for drop in each):
            guessed = sum(drop.bytes for drop in each if drop.state != "landed") * (per_byte or 0.0)
            rows = round(sum(drop.rows for drop in each if drop.state == "landed") + guessed)
        result.append(
            {
                "from": of_run.first,
                "to": of_run.last,
                "drops": of_run.drops,
                "files": sum(drop.files for drop in each),
                "bytes": of_run.bytes,
                "rows": rows,
                "seconds": None if rows is None else estimate_seconds(past, rows),
            }
        )
    return result


def _plan_view(plan: list[dict[str, Any]]) -> Any:
    if not plan:
        return Text("no drop to run")
    estimates = [each["seconds"] for each in plan if each["seconds"] is not None]
    spent = f", about {sum(estimates):,.0f} s of work" if len(estimates) == len(plan) else ""
    drops, files = (sum(each[name] for each in plan) for name in ("drops", "files"))
    runs = f"{pluralize(len(plan), 'run')} of {pluralize(drops, 'drop')} with {pluralize(files, 'file')}"
    total = Text(f"{runs}{spent}; nothing was started")
    return Group(table(list(plan[0]), [tuple(each.values()) for each in plan]), total)


def _gap_of(settings: Settings, source: Source, backfill: Backfill, failure: BackfillFailed) -> SealGap | None:
    """The refusal of a run that would have left drops out; it is more exact than the run's failure.

    None if the run failed for another reason, or if the reason is unknown."""
    ends = [each for number, each in enumerate(backfill.slices) if _has_failed(backfill, number, failure)]
    times = [source.drops.time_named(text) for text in (ends[0].first, ends[-1].last)]
    drops = source.drops.seq_nos(*times)
    interval = (source.drops.start(drops.start), source.drops.start(drops.stop))
    # an error here, such as a lake server that is down, must not hide that the run failed
    with suppress(Exception), server_session(settings, "tidemark-backfill") as spark:
        from spark_jobs.plans.plan import gap_of_run

        return gap_of_run(source, interval, spark)
    return None


def _has_failed(backfill: Backfill, number: int, failure: BackfillFailed) -> bool:
    states = failure.facts["runs"]
    return any(run_id.startswith(backfill.run_id(number)) and state == "failed" for run_id, state in states.items())


def _runs_table(runs: list[SliceRun]) -> Any:
    columns = ["from", "to", "drops", "state", "seconds", "rows", "run"]
    rows = [(r.slice.first, r.slice.last, r.slice.drops, r.state, r.seconds, r.rows, r.run_id) for r in runs]
    return table(columns, rows)
