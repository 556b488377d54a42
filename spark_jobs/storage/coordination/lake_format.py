"""The format of a lake: one number in the lake itself, so that older code leaves a newer lake alone.

It is a property of a table that all sources share, stored in that table's log: so it is copied with the lake, and no
catalog can lose it. A lake from before formats has none, and its next run sets one.
"""

from __future__ import annotations

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.delta.table_notes import properties
from spark_jobs.storage.descriptions.people_tables import DISMISSALS
from spark_jobs.storage.descriptions.sql import literal, qualified
from spark_jobs.storage.lakes.lake import Lake, TableReader

FORMAT = 1
"""The format that this version of Tidemark writes. It rises with each change of tables that older code would read wrong
or spoil. Added columns alone do not raise it."""

PROPERTY = "tidemark.format"
"""Name of the table property that has the number."""


class LakeNewer(TidemarkError):
    """A later version of Tidemark has written the lake. Facts: `format` of the lake, `supported`."""

    code = "lake_newer"


def format_of(lake: TableReader) -> str | None:
    """The lake's format as it is stored; None if there is no lake yet, or one from before formats. Runs no Spark
    job."""
    from deltalake.exceptions import TableNotFoundError

    try:
        return properties(lake.folder.handle(DISMISSALS)).get(PROPERTY)
    except TableNotFoundError:
        return None


def check_format(lake: TableReader) -> str | None:
    """Refuse a lake of a format that this version of Tidemark does not support; returns its format, as `format_of`
    does.

    Raises:
        LakeNewer: its format is greater than `FORMAT`, or not a number.
    """
    lake_format = format_of(lake)
    if lake_format is None or (lake_format.isascii() and lake_format.isdigit() and int(lake_format) <= FORMAT):
        return lake_format
    raise LakeNewer(
        expected=f"a lake of format {FORMAT} or lower, which this version of Tidemark reads and writes",
        found=f"format {lake_format!r}, written by a later version",
        consequence="nothing was read or written",
        next_step="install that version again (`git pull`, then `make setup`), or bring a backup set of before it "
        "back into an empty home: `tidemark restore`",
        format=lake_format,
        supported=FORMAT,
    )


def mark_format(lake: Lake) -> None:
    """Set the lake's format to this version's, if it has a lower one or none. The tables must exist. Call it before any
    table is changed to the format, so that older code never meets a half-changed lake.

    Raises:
        LakeNewer: the lake has a greater one.
    """
    if check_format(lake) == str(FORMAT):
        return
    table = qualified(DISMISSALS.database, DISMISSALS.table)
    try:
        lake.catalog.define(f"ALTER TABLE {table} SET TBLPROPERTIES ({literal(PROPERTY)} = {literal(str(FORMAT))})")
    except Exception:  # of any kind: classic Spark raises Java's own error, Connect another one
        # first runs of two sources do this at once, and one commit is enough
        if check_format(lake) != str(FORMAT):
            raise
