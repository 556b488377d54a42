"""The command line `tidemark`.

Exit code 0: done; 1: a check or gate failed, or the work was refused; 2: wrong usage or settings; 130: interrupted.
Results go to standard output, everything else to standard error. With `--json` a command prints exactly one JSON
document, also for a refusal (`{"error": {"code": …, "message": …, facts}}`).

A new command is a new module in `spark_jobs/cli/commands/` with one function `register(app)`; nothing else names it but
`spark_jobs.cli.topics`. The first paragraph of its docstring is its line in `tidemark --help`:

    def register(app: typer.Typer) -> None:
        app.command()(windows)

    def windows(source: str, name: str, as_json: JsonOption = False) -> None:
        '''Rows of a window as they were known at a visible time.'''
        settings = load_settings()
        rows = …                                      # call one function of the engine; raise its TidemarkError
        emit(as_json, rows, lambda: table(columns, rows))

Its top imports only `typer`, `spark_jobs.config`, `spark_jobs.errors` and `spark_jobs.cli.output`. Packages that are
slow to import (pyspark, great_expectations) are imported inside the function; else `tidemark --help` takes seconds.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script."""
    from spark_jobs.cli.forward import forward_command

    code = forward_command(sys.argv[1:])
    if code is None:
        from spark_jobs.cli.app import run

        code = run(sys.argv[1:])
    sys.exit(code)
