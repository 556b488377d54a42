"""The prompt of `tidemark sql`: statements over several lines, history, completion, and commands with a backslash."""

from __future__ import annotations

import contextlib
import readline
from collections.abc import Callable, Iterator
from pathlib import Path

from spark_jobs.cli.output import complain, note, show, table
from spark_jobs.cli.sql_names import NamesInSql
from spark_jobs.errors import TidemarkError
from spark_jobs.statements import ends_statement, one_line

PROMPT, CONTINUED = "tidemark> ", "       -> "
KEPT_STATEMENTS = 2000
"""The most statements in the file of the history."""
HELP = r"""A statement may have several lines and ends with a semicolon. Tab completes keywords, tables and columns.
  \d          the tables and views, and the functions that read the past
  \d NAME     the columns of a table, with types and comments
  \?          this help
  \q          leave, as Ctrl-D does
Ctrl-C drops the statement that is being typed, or cancels the one that runs."""

_WORD_ENDS = " \t\n,()=<>;+*/%|!'\"`"
"""The characters that end a word to complete: a dot is part of a name."""


class Prompt:
    """A conversation on a terminal, until the user leaves it.

    Args:
        history: the file of the statements that were typed before; readable by its owner alone.
        names: the names of the server's catalog.
        answer: runs the statements of a text and prints their results. It raises nothing but bugs.
    """

    def __init__(self, history: Path, names: NamesInSql, answer: Callable[[str], None]) -> None:
        self._history, self._names, self._answer = history, names, answer
        self._typed = ""
        self._candidates: list[str] = []
        self._new = 0

    def run(self) -> None:
        """Ask and answer until the user leaves; then keep the history."""
        self._begin()
        note(r"statements end with a semicolon; \? helps, \q leaves")
        try:
            for text in self._texts():
                self._remember(text)
                if text.startswith("\\"):
                    self._do(text)
                else:
                    self._answer(text)
        finally:
            self._keep()

    def _begin(self) -> None:
        # each line would be an entry, but a statement may have several
        readline.set_auto_history(False)
        readline.set_history_length(KEPT_STATEMENTS)
        readline.set_completer_delims(_WORD_ENDS)
        readline.set_completer(self._complete)
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
        with contextlib.suppress(OSError):
            readline.read_history_file(self._history)

    def _texts(self) -> Iterator[str]:
        """Yield each statement, up to a line that ends with a semicolon, and each line that begins with a backslash."""
        while True:
            try:
                line = input(CONTINUED if self._typed else PROMPT)
            except EOFError:
                return
            except KeyboardInterrupt:
                self._typed = ""
                note("")
                continue
            if not self._typed and line.strip().rstrip(";").strip() in ("exit", "quit", r"\q"):
                return
            if not self._typed and line.lstrip().startswith("\\"):
                yield line.strip()
                continue
            self._typed = f"{self._typed}{line}\n" if self._typed or line.strip() else ""
            if ends_statement(self._typed):
                text, self._typed = self._typed, ""
                yield text

    def _do(self, line: str) -> None:
        """Follow a command with a backslash."""
        command, *arguments = line.rstrip(";").split()
        try:
            if command == r"\d" and len(arguments) <= 1:
                self._names.forget()
                self._describe(*arguments)
            else:
                note(HELP if command == r"\?" else f"{line} is no command; these are:\n{HELP}")
        except KeyboardInterrupt:
            note("interrupted")
        except TidemarkError as refusal:
            complain(refusal, as_json=False)

    def _describe(self, name: str | None = None) -> None:
        if name is None:
            named = [("table", each) for each in self._names.tables()]
            named += [("function", f"{each}(…)") for each in self._names.functions()]
            show(table(["database", "kind", "name"], [(n.partition(".")[0], k, n.partition(".")[2]) for k, n in named]))
            return
        full_name = self._names.table_named(name)
        columns = [(column.name, column.type, column.comment) for column in self._names.columns(full_name)]
        show(table(["column", "type", "comment"], columns, title=full_name))

    def _complete(self, word: str, place: int) -> str | None:
        """The candidate at `place` for the word in front of the cursor, or None if there are no more."""
        if place == 0:
            # readline takes an exception for no candidates, and the server may be gone
            self._candidates = []
            self._candidates = self._find_candidates(word, readline.get_line_buffer())
        return self._candidates[place] if place < len(self._candidates) else None

    def _find_candidates(self, word: str, line: str) -> list[str]:
        if line.startswith("\\"):
            return [f"{name} " for name in self._names.tables() if name.startswith(word.lower())]
        return self._names.completions(word, f"{self._typed}{line}")

    def _remember(self, text: str) -> None:
        line = one_line(text)
        if line != readline.get_history_item(readline.get_current_history_length()):
            readline.add_history(line)
            self._new += 1

    def _keep(self) -> None:
        """Append the new statements to the file: another prompt may have appended its own meanwhile."""
        try:
            self._history.touch(mode=0o600)
            self._history.chmod(0o600)
            readline.append_history_file(self._new, self._history)
        except OSError as error:
            note(f"the history of statements is not kept: {error}")
