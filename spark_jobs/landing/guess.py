"""A source file guessed from sample files: it is filled in as most of their values suggest, and people write the rest.

A column gets the type with which the product's own reader reads most of its values (`guessed_types`). Records that
don't read with these types are reported with their line and reason, as they would be in quarantine. A column is a
decimal only if a file's own schema says so, or if JSON has its numbers as texts: no value of CSV shows whether numbers
with always two decimals are money or a measurement, so they become floats with a remark. The entity is the text column
whose values repeat most variedly, the event time the first time column that every row has; both can be given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spark_jobs.landing.dated_names import date_in, without_dates
from spark_jobs.landing.dialects import unreadable_sample
from spark_jobs.landing.guessed_columns import GuessedColumns, columns_of, identifier
from spark_jobs.landing.guessed_kinds import Kind
from spark_jobs.landing.guessed_reading import Read, read_all
from spark_jobs.landing.guessed_text import text_of
from spark_jobs.landing.sampling import Sample, read_sample
from spark_jobs.sources import Source, parse_source

_TIME_LIKE = re.compile(r"(?=(.*\d){6}).*\d[-/. :]\d.*")
"""A text that may be a time in a form that no pattern reads."""
_UNKNOWN_START = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Guess:
    """A source file's `text`, the source that it declares, and the numbers of the sample's records that it reads and
    rejects.

    `rejected`, `rules`: number of rejected records by reason and by rule. `rejects`: the first of them, each `{"file",
    "line", "rule", "reason"}`. `left_out`: columns of the sample for which nothing can be declared: objects, arrays,
    times of day. `evidence`: a sentence about each guess, with the numbers that speak for it.
    """

    text: str
    source: Source
    rows: int
    rejected: dict[str, int]
    rules: dict[str, int]
    rejects: list[dict[str, Any]]
    left_out: tuple[str, ...]
    evidence: tuple[str, ...]
    last_days_us: tuple[int | None, ...]
    """For each file, the midnight of the last day that has at least `LEAST_SHARE` of its rows; None without rows."""


def guess_source(
    files: Sequence[Path], *, name: str | None = None, entity: str | None = None, time: str | None = None
) -> Guess:
    """The source file that fits these sample files.

    Raises:
        ParameterError: a file can't be read, or has no column that could be the entity or the event time; or no row of
            the files reads.
    """
    samples = [read_sample(path) for path in files]
    _refuse_several(files, samples)
    columns = columns_of(samples, [date_in(path.name) for path in files])
    called = _name(files[0], name)
    left_out = tuple(sorted({name for sample in samples for name in sample.left_out}))
    when = _time(columns, time)
    keys = columns.as_key(_entity(columns, entity, left_out)), when

    def declare_source(start: datetime) -> tuple[str, Source]:
        text = text_of(called, samples[0].form, columns, *keys, start)
        return text, parse_source(text, file=f"{called}.yml")

    while True:
        text, source = declare_source(_UNKNOWN_START)
        read = read_all(source, files)
        if not _correct(columns, keys[1], source, read):
            break
    if not read.rows and read.rejected:
        raise unreadable_sample(
            "sample files with a row that reads", next(iter(read.rejected)), "mend the files, or name others"
        )
    if read.first is not None:
        text, source = declare_source(read.first)
    evidence = (*columns.evidence, *_evidence(columns, source, read))
    return Guess(
        text, source, read.rows, read.rejected, read.rules, read.rejects, left_out, evidence, tuple(read.last_days_us)
    )


def _refuse_several(files: Sequence[Path], samples: Sequence[Sample]) -> None:
    """Refuse files that are written in several ways."""
    first = samples[0]
    for path, other in zip(files, samples, strict=True):
        if (other.form, other.landing) != (first.form, first.landing):
            finding = f"{_describe_format(first)} in {files[0].name} and {_describe_format(other)} in {path.name}"
            raise unreadable_sample("files of one format", finding, "make a source of each")


def _describe_format(sample: Sample) -> str:
    """The format of a sample with how it is written, in words."""
    options = [f"{key} {value!r}" for key, value in sample.landing.items()]
    return f"{sample.form} ({', '.join(options)})" if options else str(sample.form)


def _correct(columns: GuessedColumns, time: str, source: Source, read: Read) -> bool:
    """Take back what all rows contradict: a type that rejects more rows than read, and a `delta_id` that rows share
    which differ. True if something was taken back."""
    able = [c for c, n in read.columns.items() if columns.kinds[c].type != "string" and c != time and n > read.rows]
    for column in able:
        evidence = f"{read.columns[column]:,} records do not read as {columns.kinds[column].type}, so it stays text"
        columns.kinds[column] = Kind("string", evidence=evidence)
    repeated = read.repeated_ids
    if repeated and source.delta_id:
        reason = f"{repeated:,} of {read.rows:,} rows have a value that another row has which differs from them"
        columns.no_ids[source.delta_id[0]] = reason
    return bool(able or repeated)


def _evidence(columns: GuessedColumns, source: Source, read: Read) -> list[str]:
    """Sentences on the columns, on the entity and on the `delta_id`."""
    sentences = [f"`{column}`: {kind.evidence}" for column, kind in columns.kinds.items() if kind.evidence]
    sentences += [
        f"`{c}`: {kind.doubt} fits as well: say which it is" for c, kind in columns.kinds.items() if kind.doubt
    ]
    values = columns.values[source.entity]
    sentences.append(
        f"entity `{source.entity}`: {len(set(values)):,} different values in {len(values):,} rows of the sample"
    )
    time, n_time = source.primary_timeline, len(columns.values[source.primary_timeline])
    others = [c for c in columns.of_types("timestamp", "date") if c != time]
    beside = f"; {', '.join(f'`{c}`' for c in others)} could be it as well (--time)" if others else ""
    sentences.append(f"event time `{time}`: {n_time:,} of {columns.n_rows:,} rows of the sample have one{beside}")
    if n_local := columns.without_offset(time):
        sentences.append(
            f"event time `{time}`: {n_local:,} of {n_time:,} times have no offset and are taken as UTC; `timezone:`"
            " of the column names another zone, see docs/howto/time-zones.md"
        )
    if source.delta_id:
        sentences.append(
            f"delta_id `{source.delta_id[0]}`: rows with the same value are equal, in all {read.rows:,} rows"
        )
    else:
        sentences.append(columns.without_id(source.entity))
    sentences += [f"no delta_id `{column}`: {sentence}" for column, sentence in columns.no_ids.items()]
    return sentences


def _entity(columns: GuessedColumns, chosen: str | None, left_out: Sequence[str]) -> str:
    if chosen is not None:
        return _check_column(columns.find(chosen), columns.kinds, "entity")
    # a column that rows lack is no entity, nor is one whose values mostly differ or are all the same
    n_rows = columns.n_rows
    named = {c: v for c, v in columns.values.items() if len(v) >= 0.95 * n_rows}
    counts = {
        c: len(set(named[c])) for c in columns.of_types("string", "int") if c in named and not columns.kinds[c].evidence
    }
    for kind in ("string", "int"):
        able = {c: n for c, n in counts.items() if columns.kinds[c].type == kind and 1 < n <= n_rows / 2}
        if able:
            return max(able, key=able.__getitem__)
    shared = [c for c in counts if columns.kinds[c].type == "string"]
    if shared:
        return shared[0]
    expected, next_step = "a column of text that says which entity a row changes", "name it with --entity"
    if left_out:
        next_step += f", or write the source file by hand: members of an object have `from: {left_out[0]}.…`"
    raise unreadable_sample(expected, f"none among {', '.join(columns.headers)}", next_step)


def _time(columns: GuessedColumns, chosen: str | None) -> str:
    times = columns.of_types("timestamp") or columns.of_types("date")
    if chosen is not None:
        return _check_column(columns.find(chosen), times, "time")
    if not times:
        expected = "a column of times, most of which read: as ISO 8601, since 1970, or by a common pattern"
        near = [f"`{column}`: {kind.evidence}" for column, kind in columns.kinds.items() if kind.evidence]
        texts = {
            c: columns.values[c][0] for c, kind in columns.kinds.items() if kind.type == "string" and columns.values[c]
        }
        near += [f"`{c}` with texts such as {text!r}" for c, text in texts.items() if _TIME_LIKE.fullmatch(text)]
        next_step = "write the source file by hand, the column with `format:` and a pattern such as %d.%m.%Y"
        raise unreadable_sample(expected, "; ".join(near) or f"none among {', '.join(columns.headers)}", next_step)
    return max(times, key=lambda column: len(columns.values[column]) >= columns.n_rows)


def _check_column(chosen: str, columns: Iterable[str], option: str) -> str:
    if chosen in columns:
        return chosen
    raise unreadable_sample(
        f"one of the columns {', '.join(columns)}", repr(chosen), f"name one of them with --{option}"
    )


def _name(path: Path, chosen: str | None) -> str:
    """The name of the source: that of the file without its date or, if it or its folder is a date, of the first folder
    above that is none."""
    if chosen is not None:
        return chosen
    resolved = path.resolve()
    stem = resolved.name.split(".")[0]
    above = [folder.name for folder in resolved.parents if folder.name]
    bare = without_dates(stem)
    if bare and (not above or without_dates(above[0])):
        return identifier(bare)
    return identifier(next((bare for folder in above if (bare := without_dates(folder))), stem))
