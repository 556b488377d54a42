"""Landing as a difference, in this process: the same rows that `difference` makes by Spark, of small files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns import Ints, numbers
from spark_jobs.engine.hashes import BloomFilter, hashes_of, row_hashes
from spark_jobs.engine.records import COLUMN_PREFIX
from spark_jobs.engine.updates import consolidate_rows
from spark_jobs.landing.blocks import Blocks
from spark_jobs.landing.counted import DUPLICATE, REJECT
from spark_jobs.landing.counted_here import counted_identities, counted_rows, counted_rows_of_drops, open_rows
from spark_jobs.landing.difference import GONE, REPLACED, REPLAYED, leaving_versions, versions_after
from spark_jobs.landing.ledger import RETRACTED, UNREADABLE, Version
from spark_jobs.landing.places import Places
from spark_jobs.landing.row_text import row_texts, rows_of_texts
from spark_jobs.landing.survey import Survey
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.tables import DUPLICATES, QUARANTINE, row_columns
from spark_jobs.storage.lakes.lake import TableReader


@dataclass(frozen=True)
class DifferenceHere:
    """The rows to append so that the desired rows count in bronze; the fields are those of `difference.Difference`."""

    rows: pa.Table
    duplicates: pa.Table
    rejects: pa.Table
    after: Mapping[str, Version]
    places: Places


def difference_here(
    lake: TableReader, source: Source, survey: Survey, blocks: Blocks, before: Mapping[str, Version]
) -> DifferenceHere:
    """Compare the rows that count with the rows that should count.

    `blocks`: the rows of the files that `survey` names. `before`: the versions of all files of the source.

    Raises:
        RowIdsShared: lines of two files would have the same row ids.
    """
    counts, _ = blocks.counts()
    lines = {path: None if of_file["whole"] else of_file["lines"] for path, of_file in counts.items()}
    concerned = versions_after(survey, lines)
    after = {**before, **concerned}
    places = Places.of(after.values(), source)
    new = blocks.rows_here(source)
    present = _Present.of(lake, source, new, leaving_versions(before, concerned))
    resolved = _resolve(source, pa.concat_tables([present.staying_rows(source), _with_text(new)]))
    counts_itself = pc.is_null(resolved["counted_row_id"])
    names = [column.name for column in row_columns(source)]
    came = resolved.filter(counts_itself).select(names)
    hidden = _as_duplicates(source, resolved.filter(pc.invert(counts_itself)), places)
    return DifferenceHere(
        consolidate_rows(pa.concat_tables([_with_diff(present.counted, -1), _with_diff(came, 1)])),
        _net(present.duplicates.select(DUPLICATE), hidden, DUPLICATE),
        _rejects(lake, source, blocks, numbers(new["row_id"]), concerned),
        after,
        places,
    )


@dataclass(frozen=True)
class _Present:
    """The rows that count now and that the landing concerns.

    Args:
        leaving: rows of chunks whose files leave.
        others: other rows of chunks, which share a delta_id with a row that comes or leaves.
        duplicates: the columns `DUPLICATE`, and `leaves`: true if the file of the row leaves.
    """

    leaving: pa.Table
    others: pa.Table
    duplicates: pa.Table

    @classmethod
    def of(cls, lake: TableReader, source: Source, new: pa.Table, leaving: Sequence[Version]) -> _Present:
        of_files = _rows_of(lake, source, leaving)
        hidden = open_rows(lake, source, DUPLICATES, DUPLICATE)
        leaves = pc.is_in(hidden["file"], value_set=pa.array([version.path for version in leaving], pa.string()))
        hidden = hidden.append_column("leaves", leaves)
        if source.delta_id is None:
            return cls(of_files, of_files.slice(0, 0), hidden.filter(leaves))
        shared = [rows.select(["delta_id"]) for rows in (new, of_files, hidden.filter(leaves))]
        ids = pc.unique(pa.concat_tables(shared)["delta_id"])
        identities = counted_identities(lake, source, BloomFilter.of(np.unique(hashes_of(ids))))
        identities = identities.filter(pc.is_in(identities["delta_id"], value_set=ids))
        others = np.setdiff1d(numbers(identities["row_id"]), numbers(of_files["row_id"]))
        hidden = hidden.filter(pc.is_in(hidden["delta_id"], value_set=ids))
        return cls(of_files, counted_rows(lake, source, others), hidden)

    @property
    def counted(self) -> pa.Table:
        """The rows of chunks."""
        return pa.concat_tables([self.leaving, self.others])

    def staying_rows(self, source: Source) -> pa.Table:
        """The rows whose files stay: columns of `tables.row_columns`, and the `text` of a row that was a duplicate."""
        texts = self.duplicates.filter(pc.invert(self.duplicates["leaves"]))["row"]
        hidden = rows_of_texts(texts.to_pylist(), row_columns(source)).append_column("text", texts.combine_chunks())
        return pa.concat_tables([_with_text(self.others), hidden])


def _rows_of(lake: TableReader, source: Source, versions: Sequence[Version]) -> pa.Table:
    """The rows of these files that count."""
    rows = counted_rows_of_drops(lake, source, sorted({version.seq_no for version in versions}))
    is_of_files = Places.of(versions, source).files(numbers(rows["row_id"])) >= 0 if versions else np.zeros(0, np.bool_)
    return rows.filter(pa.array(is_of_files))


def _resolve(source: Source, rows: pa.Table) -> pa.Table:
    """All rows, with `counted_row_id` and `conflict`. Both are null in a row that counts for its delta_id."""
    n = rows.num_rows
    row_ids = numbers(rows["row_id"])
    counted, differs, displaced = row_ids, np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    if source.delta_id is not None and n:
        codes = rows["delta_id"].combine_chunks().dictionary_encode().indices.to_numpy()
        first = _first_of(codes, source, rows)[codes]
        counted = row_ids[first]
        displaced = counted != row_ids
        values = row_hashes(rows.select([c for c in rows.column_names if c.startswith(COLUMN_PREFIX)]))
        differs = values != values[first]
    rows = rows.append_column("counted_row_id", pa.array(counted, mask=~displaced))
    return rows.append_column("conflict", pa.array(differs, mask=~displaced))


def _first_of(codes: Ints, source: Source, rows: pa.Table) -> Ints:
    """For each code, the number of the row that counts: see `counting`."""
    keys = rows.select(["row_id", *(f"{COLUMN_PREFIX}{column}" for column in source.sequence)])
    by_sequence = [(name, "descending", "at_end") for name in keys.column_names[1:]]
    by_row = ("row_id", "ascending" if source.duplicates == "first" else "descending", "at_end")
    order = [("code", "ascending", "at_end"), *(by_sequence if source.duplicates == "last" else []), by_row]
    ordered = pc.sort_indices(keys.append_column("code", pa.array(codes)), sort_keys=order).to_numpy()
    begins = np.diff(codes[ordered], prepend=-1) != 0
    return ordered[begins].astype(np.int64)


def _as_duplicates(source: Source, rows: pa.Table, places: Places) -> pa.Table:
    """Resolved rows that do not count, with the columns `DUPLICATE`; those of no known file are left out."""
    row_ids = numbers(rows["row_id"])
    files = places.files(row_ids) if row_ids.size else row_ids
    rows, row_ids, files = rows.filter(pa.array(files >= 0)), row_ids[files >= 0], files[files >= 0]
    located = {
        "file": pa.array([places.paths[file] for file in files.tolist()], pa.string()),
        "line": pa.array(row_ids - places.firsts[files] + 1, pa.int64()),
        # a row that stays a duplicate keeps its text, whoever wrote it
        "row": pc.coalesce(rows["text"], pa.array(row_texts(rows, row_columns(source)), pa.string())),
    }
    return pa.table({name: located.get(name, rows[name] if name in rows.column_names else None) for name in DUPLICATE})


def _rejects(
    lake: TableReader, source: Source, blocks: Blocks, good: Ints, concerned: Mapping[str, Version]
) -> pa.Table:
    """The changes of rejects in files that are read or taken back. The earlier rejects of an unreadable file stay,
    except for the rejection of the whole file. `good`: the ids of the rows that were read."""
    unreadable = pa.array([path for path, v in concerned.items() if v.kind == UNREADABLE], pa.string())
    retracted = pa.array([path for path, v in concerned.items() if v.kind == RETRACTED], pa.string())
    stood = open_rows(lake, source, QUARANTINE, REJECT)
    stood = stood.filter(pc.is_in(stood["file"], value_set=pa.array([*concerned], pa.string())))
    stays = pc.and_(pc.is_in(stood["file"], value_set=unreadable), pc.is_valid(stood["line"]))
    new = blocks.rejects_here.select(REJECT)
    net = _net(stood.filter(pc.invert(stays)), new, REJECT)
    ids = _row_ids(net, concerned)
    whole = pc.is_null(net["line"]).to_numpy()
    is_unreadable, is_retracted = (pc.is_in(net["file"], value_set=of).to_numpy() for of in (unreadable, retracted))
    readable = np.where(whole, ~is_unreadable, np.isin(ids, good))
    rejected = np.where(whole, is_unreadable, np.isin(ids, _row_ids(new, concerned)))
    why = np.select([is_retracted, readable, rejected], [RETRACTED, REPLAYED, REPLACED], GONE)
    ended = pa.array(why.astype(object), pa.string(), mask=numbers(net["diff"]) > 0)
    return net.append_column("ended", ended)


def _row_ids(rejects: pa.Table, concerned: Mapping[str, Version]) -> Ints:
    """The row ids of the lines of rejects; -1 for the rejection of a whole file."""
    firsts = {path: version.first_row_id or 0 for path, version in concerned.items()}
    first = np.array([firsts[path] for path in rejects["file"].to_pylist()], np.int64)
    line = numbers(rejects["line"])
    return np.where(line > 0, first + line - 1, -1)


def _net(before: pa.Table, after: pa.Table, identity: Sequence[str]) -> pa.Table:
    """Rows that go (`diff` -1) and come (+1) between two sets of rows with the same columns."""
    both = pa.concat_tables([_with_diff(before, -1), _with_diff(after.select(identity).cast(before.schema), 1)])
    summed = both.group_by(list(identity)).aggregate([("diff", "sum")]).rename_columns([*identity, "diff"])
    return summed.filter(pc.not_equal(summed["diff"], 0))


def _with_diff(rows: pa.Table, diff: int) -> pa.Table:
    return rows.append_column("diff", pa.repeat(pa.scalar(diff, pa.int64()), rows.num_rows))


def _with_text(rows: pa.Table) -> pa.Table:
    return rows.append_column("text", pa.nulls(rows.num_rows, pa.string()))
