"""The commands by topic, in the order in which people meet them: for `tidemark --help` and the page of commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

TOPICS: dict[str, tuple[str, ...]] = {
    "Begin with files of your own": ("try", "init", "new", "check", "test", "schema", "demo", "prepare"),
    "Run": ("up", "down", "status", "plan", "run", "backfill", "env"),
    "Look": ("open", "sql", "windows", "state", "query", "why", "quality", "report", "trace", "chains"),
    "Repair": ("quarantine", "retract", "rollback", "erase", "audit", "doctor"),
    "The past": ("history", "pin", "pins", "unpin"),
    "Look after the installation": (
        *("settings", "source", "maintain", "merge", "backup", "verify", "restore", "airflow", "spark-conf"),
    ),
}
"""Topic -> its commands."""

OTHERS = "Others"
"""The topic of a command that is in no other one."""

FIRST_LINE = 64
"""The most characters of a command's first sentence: with it, a line of the help fits into 80 columns."""


def by_topic(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of commands by topic; topics without a command are left out."""
    all_names = [*names]
    listed = {name for commands in TOPICS.values() for name in commands}
    topics = {topic: [name for name in commands if name in all_names] for topic, commands in TOPICS.items()}
    topics[OTHERS] = [name for name in all_names if name not in listed]
    return {topic: commands for topic, commands in topics.items() if commands}


class ByTopic(typer.core.TyperGroup):
    """The root command, whose help has one line for each command, by topic."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order of the topics."""
        return [name for names in by_topic(self.commands).values() for name in names]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        width = max(map(len, self.commands))
        options = [_record(parameter.get_help_record(ctx)) for parameter in self.get_params(ctx)]
        parts: list[Any] = [
            Text("Usage: tidemark [OPTIONS] COMMAND [ARGUMENTS]...\n", style="bold"),
            Text(self.help or "", end="\n\n"),
        ]
        for topic, names in by_topic(name for name, command in self.commands.items() if not command.hidden).items():
            lines = ((name, _first_line(self.commands[name])) for name in names)
            parts += [Text(topic, style="bold"), _lines(lines, width), Text()]
        Console(highlight=False).print(Group(*parts, Text("Options", style="bold"), _lines(options)))


def _record(record: Any) -> tuple[str, str]:
    names, words = record or ("", "")
    return names, words


def _first_line(command: Any) -> str:
    """The first sentence of a command's help, which is a paragraph of its own."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _lines(named: Iterable[tuple[str, str]], width: int | None = None) -> Padding:
    """A line for each name with its words; the column of the names has at least `width` columns of the terminal."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(style="cyan", no_wrap=True, min_width=width)
    lines.add_column()
    for name, words in named:
        lines.add_row(Text(name), Text(words))
    return Padding(lines, (0, 0, 0, 2))
