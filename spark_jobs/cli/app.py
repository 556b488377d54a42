"""The root command: it finds the command modules, and turns refusals into sentences and exit codes."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
from typing import Annotated

import typer

from spark_jobs.cli import commands
from spark_jobs.cli.output import complain, show
from spark_jobs.cli.topics import ByTopic
from spark_jobs.config import keep_private, load_settings
from spark_jobs.errors import ConfigurationError, TidemarkError

EXIT_FAILED = 1
EXIT_USAGE = 2

INTERRUPTED = "interrupted: its work on the lake server is cancelled; the same command continues from there"


def build_app() -> typer.Typer:
    """The root command with every command of `spark_jobs.cli.commands`."""
    app = typer.Typer(
        name="tidemark",
        cls=ByTopic,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for module in sorted(pkgutil.iter_modules(commands.__path__), key=lambda entry: entry.name):
        importlib.import_module(f"{commands.__name__}.{module.name}").register(app)
    return app


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Only with `--debug` does a refusal or failure show a traceback."""
    keep_private()
    # a log that can't be written, such as dbt's on a full disk, is no reason to print a traceback
    logging.raiseExceptions = False
    try:
        build_app()(args=arguments, prog_name="tidemark")
    except TidemarkError as refusal:
        if "--debug" in arguments:
            raise
        return _refuse(refusal, arguments)
    except Exception as failure:  # whatever it is, people get a sentence
        if "--debug" in arguments:
            raise
        from spark_jobs.failures import explain  # imports pyarrow, which takes as long as all of a command's help

        return _refuse(explain(failure, load_settings()), arguments)
    except SystemExit as end:
        if _is_interrupted(end):
            sys.stderr.write(f"{INTERRUPTED}\n")
        return end.code if isinstance(end.code, int) else EXIT_FAILED
    return 0


def _is_interrupted(end: SystemExit) -> bool:
    """True if Ctrl-C ended the command: Typer turns it into an exit code, without a message.

    A command that ends itself with that code has printed its own message.
    """
    return isinstance(end.__context__, typer.Exit) and isinstance(end.__context__.__cause__, KeyboardInterrupt)


def _refuse(refusal: TidemarkError, arguments: list[str]) -> int:
    complain(refusal, as_json="--json" in arguments)
    return EXIT_USAGE if isinstance(refusal, ConfigurationError) else EXIT_FAILED


def _root(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a refusal.")] = False,
) -> None:
    """Tidemark: exact windows, state and history from data that arrives late, out of order and wrong.

    `tidemark` alone says what to do next, and `tidemark COMMAND --help` explains a command.
    """
    if context.invoked_subcommand is None:
        from spark_jobs.cli.next_steps import next_steps

        show(next_steps(load_settings()))
