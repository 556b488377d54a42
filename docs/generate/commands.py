"""The page of the command line: every command with its help, its arguments and its options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from docs.generate.markdown import code, paragraphs, prose, section, table, whole_page
from spark_jobs.cli.app import build_app
from spark_jobs.cli.topics import by_topic

Command = Any
"""A command of click, or a group of commands. Typer has a click of its own, whose classes it does not export."""
Parameter = Any

_KINDS = {int: "integer", float: "number", Path: "path"}
_INTRODUCTION = """
`tidemark` alone says what to do next, and `tidemark COMMAND --help` prints what is here. Exit code 0: the work is done.
1: a check or a gate failed, or the work was [refused](errors.md). 2: wrong usage or [settings](settings.md). 130:
interrupted.
"""
_OF_ALL = "Options of `tidemark` itself stand before the command:"
_HEADERS = ("argument or option", "value", "meaning")


@dataclass(frozen=True)
class CommandEntry:
    """A command or a group of commands, with its words after `tidemark`."""

    words: tuple[str, ...]
    command: Command

    @property
    def usage(self) -> str:
        """The command line with its arguments."""
        arguments = [_placeholder(parameter) for parameter in _parameters(self.command) if not _is_option(parameter)]
        options = ["[OPTIONS]"] if any(_is_option(parameter) for parameter in _parameters(self.command)) else []
        return " ".join(["tidemark", *self.words, *options, *arguments])

    @property
    def anchor(self) -> str:
        """The anchor of its section."""
        return "-".join(self.words)


def page() -> str:
    """The page, with a section for each topic and each command."""
    by_name: dict[str, list[CommandEntry]] = {}
    for entry in entries():
        by_name.setdefault(entry.words[0], []).append(entry)
    topics = {topic: [e for name in names for e in by_name[name]] for topic, names in by_topic(by_name).items()}
    root = CommandEntry((), typer.main.get_command(build_app()))
    options = table(_HEADERS, [_row(parameter) for parameter in _parameters(root.command)])
    sections = [_topic(topic, of_topic) for topic, of_topic in topics.items()]
    return whole_page("Command line", _INTRODUCTION.strip(), _OF_ALL, options, *sections)


def entries() -> list[CommandEntry]:
    """All commands and groups, each group before its commands."""
    return list(_entries((), typer.main.get_command(build_app())))


def _entries(words: tuple[str, ...], group: Command) -> Iterator[CommandEntry]:
    for name, command in group.commands.items():
        if not command.hidden:
            yield CommandEntry((*words, name), command)
            if hasattr(command, "commands"):
                yield from _entries((*words, name), command)


def _topic(topic: str, of_topic: list[CommandEntry]) -> str:
    return section(2, prose(topic), *(_section(entry) for entry in of_topic))


def _section(entry: CommandEntry) -> str:
    parameters = _parameters(entry.command)
    rows = [_row(parameter) for parameter in sorted(parameters, key=_is_option)]
    heading = f"`tidemark {' '.join(entry.words)}` {{#{entry.anchor}}}"
    usage = f"```console\n$ {entry.usage}\n```"
    return section(3, heading, paragraphs(entry.command.help or ""), usage, table(_HEADERS, rows))


def _parameters(command: Command) -> list[Parameter]:
    """The parameters of its own, without `--help`."""
    return [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]


def _is_option(parameter: Parameter) -> bool:
    return bool(parameter.param_type_name == "option")


def _placeholder(argument: Parameter) -> str:
    """An argument as a usage line has it."""
    name = argument.metavar or argument.name.upper()
    several = f"{name}..." if argument.nargs != 1 and not name.endswith(("...", "…")) else name
    return several if argument.required or several.startswith("[") else f"[{several}]"


def _row(parameter: Parameter) -> list[str]:
    names = " ".join(code(name) for name in (*parameter.opts, *parameter.secondary_opts))
    name = names if _is_option(parameter) else code(_placeholder(parameter))
    return [name, _value(parameter), prose(parameter.help or "") + _default(parameter)]


def _value(parameter: Parameter) -> str:
    if getattr(parameter, "is_flag", False):
        return "flag"
    annotation = parameter.type_descriptor.annotation
    if get_origin(annotation) is Literal:
        return ", ".join(code(str(choice)) for choice in get_args(annotation))
    several = ", repeatable" if getattr(parameter, "multiple", False) else ""
    return _KINDS.get(annotation, "text") + several


def _default(parameter: Parameter) -> str:
    value = parameter.default
    if getattr(parameter, "is_flag", False) or value in (None, [], (), "") or callable(value):
        return ""
    return f" Default: {code(str(value))}."
