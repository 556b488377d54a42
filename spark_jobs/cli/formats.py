"""Results of queries as CSV and as Markdown, for files and other programs."""

from __future__ import annotations

import sys

from spark_jobs.cli.output import is_number, short_text, text_of
from spark_jobs.cli.rows import Fetched, distinct
from spark_jobs.csv_lines import csv_line


def write_csv(result: Fetched) -> None:
    """Write rows to standard output as CSV. Lists and structures are JSON."""
    sys.stdout.write(csv_line(distinct(result.columns)))
    for row in result.values():
        sys.stdout.write(csv_line(None if value is None else text_of(value) for value in row))


def write_markdown(result: Fetched) -> None:
    """Write rows to standard output as a table of Markdown, numbers to the right. `short_text` cuts long lists."""
    rows = [*result.values()]
    numeric = [
        any(row[place] is not None for row in rows) and all(row[place] is None or is_number(row[place]) for row in rows)
        for place in range(len(result.columns))
    ]
    lines = [[_cell(name) for name in result.columns], ["---:" if is_right else "---" for is_right in numeric]]
    lines += [["NULL" if value is None else _cell(short_text(value)) for value in row] for row in rows]
    sys.stdout.write("".join(f"| {' | '.join(line)} |\n" for line in lines))


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "<br>")
