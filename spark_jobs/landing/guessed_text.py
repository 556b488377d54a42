"""The text of a guessed source file."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from datetime import datetime

from spark_jobs.landing.guessed_checks import guessed_checks
from spark_jobs.landing.guessed_columns import GuessedColumns
from spark_jobs.landing.guessed_kinds import Kind
from spark_jobs.plugins.code import Format

_WIDTH = 118
_FIXED = re.compile(r"[+-]?\d{1,12}\.\d{2,6}")


def text_of(name: str, form: Format, columns: GuessedColumns, entity: str, time: str, start: datetime) -> str:
    """The text of the source file. `start`: its first drop; `entity`, `time`: the columns that are that."""
    kinds, values = columns.kinds, columns.values
    times = [c for c in columns.of_types("timestamp") or [time] if values[c]]
    ids = columns.ids(entity)
    has_hours = kinds[time].type == "timestamp"
    listed = [f"  {c}: {_column(c, columns, {entity, time})}{_remark(kinds[c], values[c])}" for c in kinds]
    means = [f"      mean_{c}: avg({c})" for c in columns.of_types("float")]
    means += [f"      sum_{c}: sum({c})" for c in kinds if kinds[c].type.startswith("decimal")]
    types = {column: kind.type for column, kind in kinds.items()}
    return "\n".join(
        [
            "# Guessed by `tidemark init` from sample files: look through it, then `tidemark plan` shows its results.",
            *(f"# {line}" for sentence in columns.evidence for line in textwrap.wrap(sentence, _WIDTH)),
            f"source: {name}",
            "",
            f"start: {start:%Y-%m-%d}   # the day of the files' first event; drop n has the rows of day n, UTC",
            "every: 1 day",
            "",
            "landing:",
            f"  path: {name}/{{date}}/*   # below the landing directory",
            f"  format: {form}",
            *(f"  {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in columns.landing.items()),
            "",
            "# Types are those of most of the sample's values; a value of another type puts its row in quarantine.",
            "columns:",
            *listed,
            "",
            f"timelines: [{', '.join([time, *(c for c in times if c != time)])}]",
            f"event_time: {time}{_no_offset(columns, time)}",
            f"entity: {entity}   # a row without one goes to quarantine",
            *(
                [f"delta_id: {ids[0]}   # rows with equal ones are one delta, landed once"]
                if ids
                else [f"# {line}" for line in textwrap.wrap(columns.without_id(entity), _WIDTH)]
            ),
            "",
            "windows:",
            f"  {name[:50]}_{'hourly' if has_hours else 'daily'}:",
            "    kind: tumbling",
            f"    size: 1 {'hour' if has_hours else 'day'}",
            f"    key: {entity}",
            "    aggregates:",
            "      rows_counted: count()",
            *means,
            "",
            *guessed_checks(types, values, columns.n_rows),
            "# Values do not show what a row does to its entity: with `state`, gold keeps each entity's state.",
            "",
            "dag:",
            "  schedule: manual   # people start its runs, from `start` on; or: every, a run after each drop's end",
            "",
        ]
    )


def _no_offset(columns: GuessedColumns, time: str) -> str:
    """A comment on event times without an offset."""
    if not columns.without_offset(time):
        return ""
    return "   # its times have no offset and are taken as UTC: `timezone:` of the column names another"


def _column(column: str, columns: GuessedColumns, needed: set[str]) -> str:
    header, kind = columns.headers[column], columns.kinds[column]
    keys = [f"from: {json.dumps(header, ensure_ascii=False)}"] if column != header else []
    keys += [f"format: {json.dumps(kind.format)}"] if kind.format != "iso" else []
    keys += ["optional: true"] if column in columns.optional and column not in needed else []
    quoted_type = json.dumps(kind.type) if keys and "," in kind.type else kind.type
    return f"{{{', '.join([f'type: {quoted_type}', *keys])}}}" if keys else quoted_type


def _remark(kind: Kind, values: Sequence[str]) -> str:
    """A comment about another possible type of a column: for floats that all have as many decimals, and for times that
    another format fits as well; else the evidence for its type."""
    if kind.doubt:
        return f"   # {kind.doubt} fits as well: say which it is"
    if kind.evidence:
        return f"   # {kind.evidence}"
    places = {len(v.partition(".")[2]) if _FIXED.fullmatch(v) else 0 for v in values}
    if kind.type != "float" or len(places) != 1 or 0 in places:
        return ""
    (scale,) = places
    return f'   # always {scale} decimals: "decimal(18, {scale})" if this is money, whose sums must be exact'
