"""`quarantine`: the records that could not be read, and reading them again."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import FileOption, SourceArgument, drop_time, known_source, server_session
from spark_jobs.cli.commands.run import run_source
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.cli.progress import working
from spark_jobs.cli.rows import LimitOption, emit_rows, fetch, most_rows
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.model import pluralize

if TYPE_CHECKING:
    from spark_jobs.jobs.pipeline import RunReport
    from spark_jobs.plans.replay import Asked, Replay
    from spark_jobs.sources import Source

DropOption = Annotated[str | None, typer.Option("--drop", help="Only this drop: a date, or a date and time in UTC.")]
RuleOption = Annotated[str | None, typer.Option("--rule", help="Only records that this rule rejected.")]
AllOption = Annotated[
    bool, typer.Option("--all", help="Also records that were dismissed, replayed, replaced or are gone.")
]
SHOWN_COLUMNS = ("file", "line", "last_line", "records", "rule", "reason", "raw", "replay_state")
"""The columns of a record that people see."""
SHOWN_REASONS = 20
"""Reasons that fit on a screen."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="List, read again or close records that could not be read.")
    group.command("list")(list_records)
    group.command("show")(show_records)
    group.command("replay")(replay)
    group.command("dismiss")(dismiss)
    app.add_typer(group, name="quarantine")


def list_records(
    source: SourceArgument,
    drop: DropOption = None,
    file: FileOption = None,
    rule: RuleOption = None,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Count the records in quarantine, by drop, file and rule, and by reason."""
    from spark_jobs.plans.replay import quarantined_records, reasons, summary

    settings = load_settings()
    checked = known_source(settings, source)
    asked = _selection_of(checked, drop, file, rule, every=every)
    with server_session(settings, "tidemark-quarantine") as spark:
        records = quarantined_records(spark, checked, asked)
        files, by_reason = summary(records), reasons(records)
    rows = [{"drop": checked.drops.label(row.pop("seq_no")), **row} for row in files]
    document = {"source": source, "quarantine": rows, "reasons": by_reason}
    emit(as_json, document, lambda: _view(rows, by_reason))


def _view(rows: list[dict[str, Any]], by_reason: list[dict[str, Any]]) -> Group:
    files = table(["drop", "file", "rule", "replay_state", "records"], [list(row.values()) for row in rows])
    columns = ["rule", "reason", "replay_state", "records"]
    reasons_view = table(columns, [[row[column] for column in columns] for row in by_reason[:SHOWN_REASONS]])
    more = len(by_reason) - SHOWN_REASONS
    left = [Text(f"and {pluralize(more, 'more reason')}, in --json")] if more > 0 else []
    return Group(files, Text(), reasons_view, *left)


def dismiss(
    source: SourceArgument,
    because: Annotated[str, typer.Option("--because", help="Why; kept in bronze.dismissals with who and when.")],
    drop: DropOption = None,
    file: FileOption = None,
    rule: RuleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close open records of a --file, --drop or --rule: of files that are gone, or that are no data.

    Closed records are kept, count as before, and are listed with --all. They are open again once their file lands with
    other bytes.
    """
    from spark_jobs.plans.replay import dismiss as close

    settings = load_settings()
    checked = known_source(settings, source)
    if drop is None and file is None and rule is None:
        raise ParameterError(
            expected="--file, --drop or --rule", found="none of them", next_step="say which records to close"
        )
    asked = _selection_of(checked, drop, file, rule)
    with server_session(settings, "tidemark-quarantine") as spark:
        closed = close(spark, checked, asked, because, getpass.getuser())
    title = f"dismissed: {because.strip()}"
    rows = [list(row.values()) for row in closed]
    document = {"source": source, "because": because.strip(), "dismissed": closed}
    emit(as_json, document, lambda: table(["file", "rule", "records"], rows, title=title))


def show_records(
    source: SourceArgument,
    drop: DropOption = None,
    file: FileOption = None,
    rule: RuleOption = None,
    every: AllOption = False,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """The records themselves, with file, line and reason."""
    from spark_jobs.plans.replay import quarantined_records

    settings = load_settings()
    checked = known_source(settings, source)
    asked = _selection_of(checked, drop, file, rule, every=every)
    with server_session(settings, "tidemark-quarantine") as spark:
        records = quarantined_records(spark, checked, asked).orderBy("file", "line", "landing")
        rows = fetch(records, most_rows(limit, as_json=as_json))
    emit_rows(as_json, rows, key="records", about={"source": source}, columns=SHOWN_COLUMNS)


def replay(
    source: SourceArgument,
    drop: DropOption = None,
    file: FileOption = None,
    rule: RuleOption = None,
    accept_definition: Annotated[
        bool, typer.Option("--accept-definition", help="Read all landed files as the changed source file says.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Read the files of open records again. A record that is readable now lands once, also if this is repeated.

    Correct the source file (then with --accept-definition), or the file. A record that is read leaves quarantine.
    """
    from spark_jobs.plans.replay import quarantined_records, replay_of, summary

    settings = load_settings()
    checked = known_source(settings, source)
    asked = _selection_of(checked, drop, file, rule)
    with server_session(settings, "tidemark-quarantine") as spark:
        chosen = replay_of(spark, checked, asked)
    reports = [] if chosen is None else [_run(checked, chosen, accept_definition=accept_definition)]
    with server_session(settings, "tidemark-quarantine") as spark:
        left = summary(quarantined_records(spark, checked, asked))
    rows = [{"drop": checked.drops.label(row.pop("seq_no")), **row} for row in left]
    landed = sum(report.stages[0]["rows"] for report in reports)
    document = {
        "source": source,
        "files": [] if chosen is None else sorted(chosen.files),
        "rows": landed,
        "rejects_back": sum(report.stages[0]["rejects_back"] for report in reports),
        "runs": [{"run_id": report.run_id, "stages": report.stages} for report in reports],
        "open": rows,
    }
    columns = ["drop", "file", "rule", "replay_state", "records"]
    title = f"{pluralize(landed, 'row')} landed; still in quarantine:"
    emit(as_json, document, lambda: table(columns, [list(row.values()) for row in rows], title=title))


def _selection_of(
    source: Source, drop: str | None, file: str | None, rule: str | None, *, every: bool = False
) -> Asked:
    from spark_jobs.plans.replay import OPEN, Asked

    seq_no = None if drop is None else source.drops.seq_no_named(drop_time(source, drop))
    return Asked(None if seq_no is None else range(seq_no, seq_no + 1), file, rule, None if every else OPEN)


def _run(source: Source, chosen: Replay, *, accept_definition: bool) -> RunReport:
    from spark_jobs.jobs.request import Request
    from spark_jobs.storage.descriptions.times import instant as of_micros

    lo, hi = map(of_micros, chosen.interval_us(source))
    request = Request(replay=chosen.files, accept_definition=accept_definition)
    with working(f"replay {source.name}") as report_step:
        return run_source(load_settings(), source.name, lo, hi, prefix="replay", request=request, on_stage=report_step)
