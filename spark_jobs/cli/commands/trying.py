"""`try`: what Tidemark makes of some files, without an installation, a server or Java."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from spark_jobs.cli.output import JsonOption, RowsView, emit, show, shown, table
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_jobs.jobs.trial import Restated, Trial, TriedDrop
    from spark_jobs.landing.guess import Guess

SHOWN_ROWS = 10
"""The most rows of a table that are shown."""
SHOWN_REASONS = 5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("try")(try_)


def try_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files as they came: CSV, NDJSON, Parquet.")],
    name: Annotated[str | None, typer.Option(help="The source's name; default: that of the files' folder.")] = None,
    entity: Annotated[str | None, typer.Option(help="The column that says which entity a row changes.")] = None,
    time: Annotated[str | None, typer.Option(help="The column of the event time.")] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="A new folder, which keeps the source file, the landing folder, tables and pages."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Guess a source from files, run all of it over them in a scratch folder, and show what comes out.

    No server is started, and nothing of an installation changes. A file is a drop: that of the date in its path, else
    that of the last day of its rows.
    """
    from spark_jobs.jobs.trial import try_files

    missing = [file for file in files if not file.is_file()]
    if missing:
        raise ParameterError(expected="files that are there", found=str(missing[0]), next_step="name files of data")
    if keep is not None and keep.is_dir() and any(keep.iterdir()):
        raise ParameterError(
            expected="a folder that is empty or not there yet", found=str(keep), next_step="name another with --keep"
        )
    folder = keep or Path(tempfile.mkdtemp(prefix="tidemark-try-"))
    try:
        trial = try_files(
            files,
            folder,
            name=name,
            entity=entity,
            time=time,
            on_guess=lambda guess: None if as_json else _show_guess(guess),
            on_drop=lambda drop: None if as_json else _show_drop(drop),
        )
        pages = _write_pages(trial, folder) if keep is not None else None
        document = {**_document(trial), "folder": None if keep is None else str(keep), "page": pages}
        emit(as_json, document, lambda: Text(_kept(trial, keep, pages) if keep is not None else _NOT_KEPT))
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


_NOT_KEPT = "Nothing was kept; `--keep DIR` keeps the source file, the landing folder and pages to look at."


def _show_guess(guess: Guess) -> None:
    source = guess.source
    columns = [(name, column.type, source.header_name(name)) for name, column in source.columns.items()]
    show(table(["column", "type", "in the files"], columns, title=f"guessed source {source.name}"))
    rejected = sum(guess.rejected.values())
    lines = [f"entity {source.entity}, event time {source.primary_timeline}; {guess.rows:,} rows read"]
    lines[0] += f", {rejected:,} rejected" if rejected else ""
    lines += [f"  {r['file']}, line {r['line']}: {r['reason']}" for r in guess.rejects[:SHOWN_REASONS]]
    lines += [f"  no type fits, so left out: {', '.join(guess.left_out)}"] if guess.left_out else []
    show(Text("\n".join(lines) + "\n"))


def _show_drop(drop: TriedDrop) -> None:
    counts = [f"{drop.ran.count('rows'):,} rows"]
    counts += [f"{n:,} {what}" for what in ("rejects", "duplicates") if (n := drop.ran.count(what))]
    counts += [f"{drop.late.num_rows:,} late"] if drop.late.num_rows else []
    show(Text(f"drop {drop.ran.drop} ({', '.join(drop.files)}): {', '.join(counts)}", style="bold"))
    for restated in drop.restated:
        _show_restated(restated)


def _show_restated(restated: Restated) -> None:
    name, before, after = restated.definition.name, restated.before, restated.after
    if not after.num_rows and not before.num_rows:
        return
    new = after.num_rows - before.num_rows
    title = f"silver.{name}: {new:,} new windows" + (f", {before.num_rows:,} restated" if before.num_rows else "")
    show(Text(title))
    if before.num_rows:
        # the restated ones are what a reader looks for
        columns, rows = _as_changes(restated)
        show(RowsView(columns, rows[:SHOWN_ROWS]))
        return
    first = _plain(after).slice(0, SHOWN_ROWS)
    show(RowsView(first.column_names, [[*row.values()] for row in first.to_pylist()]))


def _as_changes(restated: Restated) -> tuple[list[str], list[list[Any]]]:
    """Each restated window: its identity, and each value as it was and as it is where these differ."""
    identity = restated.definition.identity
    after = {tuple(row[c] for c in identity): row for row in restated.after.to_pylist()}
    values = [c for c in _plain(restated.after).column_names if c not in identity]
    rows = []
    for row in restated.before.to_pylist():
        key = tuple(row[c] for c in identity)
        now = after.get(key)
        changed = [row[c] if now is not None and row[c] == now[c] else f"{_of(row, c)} → {_of(now, c)}" for c in values]
        rows.append([*key, *changed])
    return [*identity, *values], rows


def _of(row: dict[str, Any] | None, column: str) -> str:
    return "gone" if row is None else "NULL" if row[column] is None else shown(row[column])


def _plain(windows: pa.Table) -> pa.Table:
    """The columns of windows that people read."""
    of_history = {"known_from", "era", "token", "revision"}
    return windows.select([name for name in windows.column_names if name not in of_history])


def _write_pages(trial: Trial, folder: Path) -> str:
    from spark_jobs.portal.site import write_site

    pages = folder / "pages"
    pages.mkdir()
    write_site(trial.installation.settings, pages)
    return str(pages / "index.html")


def _kept(trial: Trial, keep: Path | None, page: str | None) -> str:
    name = trial.installation.source.name
    return (
        f"\nOpen {page} to look at all of it.\n"
        f"{keep}/sources/{name}.yml is the source file, {keep}/landing has the files. In an installation of its own:\n"
        f"  export TIDEMARK_HOME={keep}/installation TIDEMARK_SOURCES={keep}/sources TIDEMARK_LANDING={keep}/landing\n"
        f"  tidemark up && tidemark run {name} --from {trial.drops[0].ran.drop} --to {trial.drops[-1].ran.drop}"
    )


def _document(trial: Trial) -> dict[str, Any]:
    guess, source = trial.guess, trial.installation.source
    return {
        "source": source.name,
        "entity": source.entity,
        "event_time": source.primary_timeline,
        "columns": {name: column.type for name, column in source.columns.items()},
        "rows": guess.rows,
        "rejected": guess.rejected,
        "left_out": list(guess.left_out),
        "drops": [
            {
                "drop": drop.ran.drop,
                "files": list(drop.files),
                **{count: drop.ran.count(count) for count in ("rows", "rejects", "duplicates")},
                "late": drop.late.num_rows,
                "windows": {
                    one.definition.name: {"published": one.after.num_rows, "restated": one.before.num_rows}
                    for one in drop.restated
                },
            }
            for drop in trial.drops
        ],
        "windows": {name: _plain(rows).slice(0, SHOWN_ROWS).to_pylist() for name, rows in trial.windows.items()},
    }
