"""`try`: run a source on some files, without an installation, a server or Java."""

from __future__ import annotations

import shutil
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from spark_jobs.cli.guesses import EntityOption, NameOption, TimeOption, guess_document, guess_view
from spark_jobs.cli.named_sources import find_source_or_file
from spark_jobs.cli.output import JsonOption, emit, note, short_text, show, table
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError
from spark_jobs.model import pluralize

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_jobs.landing.guess import Guess
    from spark_jobs.trials.trial import Trial, TrialRestatement, TriedDrop

SHOWN_ROWS = 10
"""The most rows of a table that are shown."""
SHOWN_NEW_ROWS = 5
"""The most new windows that are shown below windows that were restated."""
SHOWN_REASONS = 5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("try")(try_)


def try_(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files as they came: CSV, NDJSON, JSON, Parquet.")
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="SOURCE",
            help="A source, or the path of its source file: nothing is guessed. Without files, those of its landing"
            " folder are tried.",
        ),
    ] = None,
    name: NameOption = None,
    entity: EntityOption = None,
    time: TimeOption = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            help="A new folder, which keeps the source file, the landing folder, tables and pages. In a terminal the"
            " first page is opened in a browser.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Guess a source from files, run it, and show its results.

    All of it runs over the files in a scratch folder. No server is started, and nothing of an installation changes. A
    file is a drop: that of the date in its path, else that of the last day of its rows.
    """
    from spark_jobs.trials.trial import try_files, try_source

    files = files or []
    _check_arguments(files, of, [option for option in (name, entity, time) if option], keep)
    folder = keep or Path(tempfile.mkdtemp(prefix="tidemark-try-"))
    show_drop = (lambda _: None) if as_json else _show_drop
    try:
        if of is not None:
            source, path = find_source_or_file(of)
            text = path.read_text(encoding="utf-8-sig")
            trial = try_source(
                load_settings(), source, text, folder, files=files, on_skip=_warn_of_skipped, on_drop=show_drop
            )
        else:
            show_guess = (lambda _: None) if as_json else _show_guess
            chosen = {"name": name, "entity": entity, "time": time}
            trial = try_files(files, folder, **chosen, on_guess=show_guess, on_drop=show_drop)
        pages = _write_pages(trial, folder) if keep is not None else None
        document = {**_document(trial), "folder": None if keep is None else str(keep), "page": pages}
        emit(as_json, document, lambda: Text(_next_steps(trial, keep, pages) if keep is not None else _NOT_KEPT))
        if pages is not None and sys.stdout.isatty() and not as_json:
            webbrowser.open(Path(pages).resolve().as_uri())
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _check_arguments(files: Sequence[Path], of: str | None, guessed: Sequence[str], keep: Path | None) -> None:
    """Refuse files that are not there, and arguments that do not go together."""
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise ParameterError(expected="files that are there", found=str(missing[0]), next_step="name files of data")
    if not files and of is None:
        raise ParameterError(
            expected="FILE or --source SOURCE", found="neither", next_step="name files of data, or a source"
        )
    if of is not None and guessed:
        raise ParameterError(
            expected="no --name, --entity and --time beside --source: a source file has them",
            found=guessed[0],
            next_step="leave them out, or leave out --source",
        )
    if keep is not None and keep.is_dir() and any(keep.iterdir()):
        raise ParameterError(
            expected="a folder that is empty or not there yet", found=str(keep), next_step="name another with --keep"
        )


_NOT_KEPT = "Nothing was kept; `--keep DIR` keeps the source file, the landing folder and pages to look at."


def _warn_of_skipped(checks: Sequence[str]) -> None:
    names = ", ".join(checks)
    note(f"warning: not judged, since only Spark reads conditions in SQL (`kind: sql`): {names}; a run judges them")


def _show_guess(guess: Guess) -> None:
    show(guess_view(guess, f"guessed source {guess.source.name}", SHOWN_REASONS))
    show(Text(""))


def _show_drop(drop: TriedDrop) -> None:
    counts = [pluralize(drop.ran.count("rows"), "row")]
    counts += [pluralize(n, what) for what in ("reject", "duplicate") if (n := drop.ran.count(f"{what}s"))]
    counts += [f"{drop.late.num_rows:,} late"] if drop.late.num_rows else []
    show(Text(f"drop {drop.ran.drop} ({', '.join(drop.files)}): {', '.join(counts)}", style="bold"))
    for restated in drop.restated:
        _show_restated(restated)
    if drop.states is not None:
        show(Text(f"{drop.states.num_rows:,} states"))
        _show_rows(drop.states, SHOWN_ROWS)


def _show_restated(restated: TrialRestatement) -> None:
    before, added = restated.before, _new_windows(restated)
    if not len(added) and not before.num_rows:
        return
    restated_too = f", {before.num_rows:,} restated" if before.num_rows else ""
    show(Text(f"silver.{restated.definition.name}: {pluralize(len(added), 'new window')}{restated_too}"))
    if before.num_rows:
        # the restated ones are what a reader looks for
        columns, rows = _as_changes(restated)
        _show_first(columns, rows[:SHOWN_ROWS], len(rows), "restated")
    if len(added):
        _show_rows(_plain(added), *((SHOWN_NEW_ROWS, "new") if before.num_rows else (SHOWN_ROWS,)))


def _new_windows(restated: TrialRestatement) -> pa.Table:
    """The windows that were not published before."""
    import pyarrow as pa

    if not restated.before.num_rows:
        return restated.after
    identity = restated.definition.identity
    before = {tuple(row.values()) for row in restated.before.select(identity).to_pylist()}
    rows = restated.after.select(identity).to_pylist()
    return restated.after.filter(pa.array([tuple(row.values()) not in before for row in rows], pa.bool_()))


def _show_rows(rows: pa.Table, most: int, what: str = "") -> None:
    _show_first(rows.column_names, [[*row.values()] for row in rows.slice(0, most).to_pylist()], len(rows), what)


def _show_first(columns: Sequence[str], rows: Sequence[Sequence[Any]], count: int, what: str) -> None:
    """Show the first rows of a table that has `count` of them, below a line that names them and says if there are
    more."""
    words = [what] if what else []
    words += [f"the first {len(rows)} of {count:,}"] if count > len(rows) else []
    if words:
        show(Text(f"{', '.join(words)}:"))
    show(table(columns, rows))


def _as_changes(restated: TrialRestatement) -> tuple[list[str], list[list[Any]]]:
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
    return "gone" if row is None else "NULL" if row[column] is None else short_text(row[column])


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


def _next_steps(trial: Trial, keep: Path | None, page: str | None) -> str:
    name = trial.installation.source.name
    return (
        f"\nOpen {page} to look at all of it.\n"
        f"{keep}/sources/{name}.yml is the source file, {keep}/landing has the files. In an installation of its own:\n"
        f"  export TIDEMARK_HOME={keep}/installation TIDEMARK_SOURCES={keep}/sources TIDEMARK_LANDING={keep}/landing\n"
        f"  tidemark up --no-airflow\n"
        f"  tidemark run {name} --from {trial.drops[0].ran.drop} --to {trial.drops[-1].ran.drop} --each\n"
        "With --each every drop is a publication of its own, which late rows of later drops then restate."
    )


def _document(trial: Trial) -> dict[str, Any]:
    return {
        **({"source": trial.installation.source.name} if trial.guess is None else guess_document(trial.guess)),
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
        "skipped_checks": list(trial.skipped),
        "states": None if trial.states is None else trial.states.slice(0, SHOWN_ROWS).to_pylist(),
        "windows": {name: _plain(rows).slice(0, SHOWN_ROWS).to_pylist() for name, rows in trial.windows.items()},
    }
