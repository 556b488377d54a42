"""The format of a lake: one number in the lake itself, so that code which is older than the lake leaves it alone.

It is a property of a table that all sources share, in its log: it is copied with the lake, and no catalog loses it. A
lake of before formats has none, and is given one by its next run.
"""

from __future__ import annotations

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.people_tables import DISMISSALS
from spark_jobs.storage.sql import literal, qualified
from spark_jobs.storage.standing_tables import StandingTables

FORMAT = 1
"""What this version of Tidemark writes. It rises with each change of tables that code of before would read wrong or
spoil; columns that are added alone are none."""

PROPERTY = "tidemark.format"
"""Table property that has the number."""


class LakeNewer(TidemarkError):
    """A later version of Tidemark has written the lake. Facts: `format` as it stands in the lake, `supported`."""

    code = "lake_newer"


def format_of(lake: StandingTables) -> str | None:
    """The lake's format as it stands there; None where there is no lake yet, or one of before formats. No Spark job."""
    from deltalake.exceptions import TableNotFoundError

    try:
        return lake.properties(DISMISSALS).get(PROPERTY)
    except TableNotFoundError:
        return None


def check_format(lake: StandingTables) -> str | None:
    """Refuse a lake that this version of Tidemark can't know; returns its format, as `format_of` does.

    Raises:
        LakeNewer: its format is greater, or no number.
    """
    stands = format_of(lake)
    if stands is None or (stands.isascii() and stands.isdigit() and int(stands) <= FORMAT):
        return stands
    raise LakeNewer(
        expected=f"a lake of format {FORMAT} or lower, which this version of Tidemark reads and writes",
        found=f"format {stands!r}, written by a later version",
        consequence="nothing was read or written",
        next_step="install that version again (`git pull`, then `make setup`), or bring a backup set of before it "
        "back into an empty home: `tidemark restore`",
        format=stands,
        supported=FORMAT,
    )


def mark_format(lake: StandingTables) -> None:
    """Let the lake say this version's format, if it says a lower one or none. Its tables stand; call it before any is
    changed to the format, so that code of before never meets one that is half changed.

    Raises:
        LakeNewer: the lake has a greater one.
    """
    if check_format(lake) == str(FORMAT):
        return
    table = qualified(DISMISSALS.database, DISMISSALS.table)
    try:
        lake.define(f"ALTER TABLE {table} SET TBLPROPERTIES ({literal(PROPERTY)} = {literal(str(FORMAT))})")
    except Exception:  # whatever it is: classic Spark shows Java's own error, Connect another
        # first runs of two sources do this at once, and one commit is enough
        if check_format(lake) != str(FORMAT):
            raise
